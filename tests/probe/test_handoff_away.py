"""A process that has handed over ends, whatever its script does with the exception by which it is to; and its endings
are its own."""

from __future__ import annotations

import json

import pytest
from fake_engine import FakeEngine, script

from cockpit.probe.handoff import away
from cockpit.probe.handoff.away import HandedOver

SOURCE = """
    import atexit, contextlib, os, sys, threading
    import torch
    from torch import nn, save
    from torch.utils.data import DataLoader
    import cockpit

    torch.manual_seed(1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.ones(12, 4), batch_size=4)
    validation = iter(DataLoader(torch.ones(12, 4), batch_size=4))
    run = cockpit.session(model=model, optimizer=optimizer)
    loss = model(torch.ones(4)).sum()
    life = os.path.join(os.environ["COCKPIT_RUN"], "life-2")

    def train(epochs):
        for epoch in epochs:
            for x in loader:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
            print("epoch", epoch)
            # as its engine asks for it
            sys.modules["_training_cockpit.probe.handoff.session"].LIVE[0].receive(
                {"m": "handoff", "id": "r1", "life": life})

    def saved(name, save=torch.save):
        save(model.state_dict(), os.path.join(os.environ["COCKPIT_RUN"], name + ".pt"))
        print("saved", name)

    {body}
"""

IN_EXCEPT = '    saved("in-except")'
SWALLOWED = """
    atexit.register(saved, "at-exit")
    try:
        train(run.epochs(9))
    except:
        saved("in-except")
    THINGS = {
        "save": lambda: saved("final"),
        "save by its name": lambda: saved("final", save),
        "evaluation": lambda: model(torch.ones(2, 4)),
        "no gradients": lambda: torch.no_grad()(model)(torch.ones(2, 4)),
        "loader": lambda: list(loader),
        "batch": lambda: next(validation),
        "backward": lambda: loss.backward(),
        "step": lambda: optimizer.step(),
        "another loop": lambda: train(range(2)),
    }
    for name, thing in THINGS.items():
        try:
            thing()
            print("went on:", name)
        except SystemExit as error:
            assert error.code == 0
            print("ended at:", name)
    saver = threading.Thread(target=saved, args=("by-a-thread",))
    saver.start()
    saver.join()
    try:
        saved("last")
    finally:
        try:
            int("x")
        except ValueError:
            saved("in-finally")
    print("done")
"""

ENDINGS = """
    @contextlib.contextmanager
    def tracked():
        try:
            yield
        finally:
            saved("by-a-manager")

    class Saver:
        def __enter__(self): return self
        def __exit__(self, *error): saved("by-exit")

    def final():
        print("evaluated", model(torch.ones(4)).shape)
        saved("final")

    atexit.register(saved, "at-exit")
    try:
        with tracked(), Saver():
            train(run.epochs(9))
        print("done")
    except BaseException as error:
        print(type(error).__mro__[1].__name__, error.code)
        final()
        raise
    finally:
        list(loader)
        saved("in-finally")
"""


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "run" / "life-2").mkdir(parents=True)
    (tmp_path / "run" / "start.json").write_text("{}")
    return tmp_path / "run"


def ran(forks, run_dir, body):
    return forks.run(script(run_dir / "src", SOURCE.replace("    {body}", body)), run_dir=run_dir)


def test_a_script_that_swallows_its_end_is_ended_at_whatever_it_does_next(forks, run_dir):
    engine = FakeEngine(run_dir / "s")
    found = ran(forks, run_dir, SWALLOWED)
    assert json.loads((run_dir / "life-2" / "go").read_text())["epoch"] == 1
    ended = [line.partition(": ")[2] for line in found.own if line.startswith("ended at")]
    assert len(ended) == 9 and not [line for line in found.own if line.startswith("went on")], found.text
    assert found.status == 0 and "done" not in found.own
    saved = ["saved in-except", "saved by-a-thread", "saved in-finally", "saved at-exit"]
    assert [line for line in found.own if line.startswith("saved")] == saved, "endings, and other threads, are its own"
    assert not (run_dir / "final.pt").exists() and not (run_dir / "last.pt").exists()
    lines = (run_dir / "src" / "train.py").read_text().splitlines()
    where = f"train.py:{1 + lines.index(IN_EXCEPT)}"
    assert [line for line in found.told if "another process" in line] == [
        f"cockpit: this training goes on in another process, and the end of this one was caught ({where}): it ends at"
        " its next save, step or call of a model."
    ], "said once"
    assert engine.wait("handoff", state="held")["what"] == where and len(engine.of("handoff", state="held")) == 1
    engine.close()


def test_what_belongs_to_an_ending_is_carried_out(forks, run_dir):
    found = ran(forks, run_dir, ENDINGS)
    assert found.status == 0 and found.own == [
        "epoch 0", "saved by-exit", "saved by-a-manager", "SystemExit 0", "evaluated torch.Size([1])", "saved final",
        "saved in-finally", "saved at-exit",
    ], found.text  # fmt: skip
    assert not [line for line in found.told if "another process" in line]


KEPT = """
    try:
        train(run.epochs(9))
    except BaseException as error:
        kept = error
    {after}
    print("done")
"""


@pytest.mark.long
@pytest.mark.parametrize(("after", "where"), [("saved('final')", "a save"), ("model(torch.ones(4))", "a model's call")])
def test_an_end_that_is_kept_for_later_is_told_of_where_the_script_goes_on(forks, run_dir, after, where):
    found = ran(forks, run_dir, KEPT.replace("{after}", after))
    assert found.status == 0 and "done" not in found.own
    assert [f"was caught ({where})" in line for line in found.told if "another process" in line] == [True]


@pytest.mark.long
def test_a_loop_in_a_thread_of_its_own_ends_the_process_too(forks, run_dir):
    """Such a thread ends silently, and whoever waited for it would go on."""
    body = """
    loop = threading.Thread(target=train, args=(run.epochs(9),))
    loop.start()
    loop.join()
    print("joined")
    saved("final")
    print("done")
    """
    found = ran(forks, run_dir, body)
    assert found.status == 0 and "joined" in found.own and "done" not in found.own, found.text
    assert [line for line in found.told if "another process" in line]


def test_whoever_lets_go_of_it_in_the_end_is_not_the_one_that_caught_it():
    """Kept in a cycle it goes when it pleases the collector, perhaps in a thread of ours; at the very end by nobody."""
    told: list[str] = []

    def dropped(code: str, filename: str) -> None:
        over = HandedOver(0)
        over.caught = told.append
        names = {"over": over}
        del over
        exec(compile(code, filename, "exec"), names)

    dropped("\n\ndel over", "/somewhere/train.py")
    dropped("del over", away.__file__)
    over = HandedOver(0)
    del over
    assert told == ["train.py:3", "in its script"]

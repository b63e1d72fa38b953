"""What a script, an engine and a user meet: misuse, refusals, wishes, lives that cannot go on; each in a sentence."""

from __future__ import annotations

import functools
import json
import os
import shutil
import textwrap
import threading
import time
from itertools import pairwise

import pytest
from fake_engine import ROOT, FakeEngine, script

from cockpit.probe.handoff.claim import closed

HANDED = ROOT / "tests" / "trainers" / "handed.py"
NOT_RESTORED = 75
LONG = functools.partial(pytest.param, marks=pytest.mark.long)

TRAIN = """
    import os, sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    import cockpit

    class Odd(nn.Linear):
        {methods}

    {before}
    torch.manual_seed(1)
    model = Odd(int(os.environ.get("WIDTH", 4)), 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.ones(12, model.in_features), batch_size=4)
    run = cockpit.session(model=model, optimizer=optimizer)
    print("restored", run.restored, "step", run.step)
    for epoch in {loop}:
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        print("epoch", epoch)
        {end}
    print("done")
    {after}
"""


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "start.json").write_text(json.dumps({"handoff_every": 1}))
    return folder


def train(folder, loop="run.epochs(2)", before="", methods="pass", end="", after=""):
    return script(folder / "src", TRAIN.format(loop=loop, before=before, methods=methods, end=end, after=after))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        LONG({"before": "cockpit.session()"}, "name what is to go on, model=model, optimizer=optimizer"),
        LONG({"before": "cockpit.session(model=3)"}, "cockpit.session(model=…) needs something with state_dict() and"),
        LONG({"loop": "[*run.epochs(1), *run.epochs(1)]"}, "run.epochs(n) was called twice"),
        ({"before": "m = nn.Linear(1, 1); cockpit.session(m=m)"}, "cockpit.session(…) was called twice"),
    ],
)
def test_misuse_is_said_in_one_sentence(forks, run_dir, words, sentence):
    ran = forks.run(train(run_dir, **words), run_dir=run_dir)
    assert ran.status == 1 and sentence in ran.own[-1] and "SessionError" in ran.own[-1], ran.text


ASKED = """
    epochs = run.epochs(4)
    print(epochs, len(epochs), epochs[1], epochs[-1], epochs[1:], epochs[::2], 3 in epochs, 4 in epochs, 2.5 in epochs)
    print(list(reversed(epochs)), epochs.index(2), epochs.count(9), epochs.start, epochs.stop, epochs.step)
    print(epochs == range(4), range(4) == epochs, epochs == range(5), hash(epochs) == hash(range(4)), sorted(epochs))
    for wrong in (lambda: epochs[4], lambda: epochs.index(7), lambda: epochs["a"]):
        try: wrong()
        except Exception as error: print(type(error).__name__, error)
"""


def test_what_the_loop_is_over_answers_as_the_range_that_it_would_be(forks, run_dir):
    """A script that was written and tried without cockpit must not fail, hours later, under it."""
    path = train(run_dir, "range(1)", before="", after="")
    path.write_text(path.read_text().replace("for epoch in range(1)", textwrap.dedent(ASKED) + "\nfor epoch in epochs"))
    ran = forks.run(path, run_dir=run_dir)
    assert ran.text == forks.run(path).text and ran.own[-1] == "done" and "epoch 3" in ran.own, ran.text


@pytest.mark.long
@pytest.mark.parametrize("loop", ["run.epochs(3)[1:]", "reversed(run.epochs(3))", "[*(e := run.epochs(2)), *e]"])
def test_a_loop_over_a_part_of_it_goes_as_it_would_without(forks, run_dir, loop):
    path = train(run_dir, loop)
    ran = forks.run(path, run_dir=run_dir)
    assert ran.text == forks.run(path).text and ran.own[-1] == "done"


@pytest.mark.long
def test_in_a_later_life_it_is_as_long_as_ever_and_begins_where_the_last_one_stopped(forks, run_dir):
    assert forks.run(train(run_dir), run_dir=run_dir).own[-1] == "done"
    after = "print(len(epochs), epochs[0], 1 in epochs)"
    path = train(run_dir, "epochs", after=after)
    path.write_text(path.read_text().replace("for epoch in epochs", "epochs = run.epochs(4)\nfor epoch in epochs"))
    again = forks.run(path, run_dir=run_dir, life=2)
    assert again.own == ["restored 2 step 6", "epoch 2", "epoch 3", "done", "4 0 True"], again.text


@pytest.mark.long
def test_without_cockpit_nothing_happens(forks, run_dir):
    ran = forks.run(train(run_dir))
    assert ran.text == "restored None step 0\nepoch 0\nepoch 1\ndone\n" and not (run_dir / "handoff").exists()


def test_a_life_goes_on_or_says_why_not(forks, run_dir):
    assert forks.run(train(run_dir), run_dir=run_dir).own[-1] == "done"
    again = forks.run(train(run_dir, "run.epochs(3)"), run_dir=run_dir, life=2)
    assert again.text == ("cockpit: goes on from hand-off 2: epoch 2, step 6.\nrestored 2 step 6\nepoch 2\ndone\n")
    fewer = forks.run(train(run_dir), run_dir=run_dir, life=3)
    assert fewer.status == NOT_RESTORED and fewer.own == ["restored 3 step 9"]
    assert "3 epochs were done at the hand-off, and run.epochs(2) asks for fewer: ask for 3 or more" in fewer.told[1]
    wider = forks.run(train(run_dir), run_dir=run_dir, life=4, WIDTH="5")
    assert wider.status == NOT_RESTORED and wider.own == []
    assert "model could not be restored from hand-off 3: RuntimeError: Error(s) in loading" in wider.told[0]
    never = forks.run(train(run_dir, "range(1)"), run_dir=run_dir, life=5)
    assert "run.epochs(n) was never gone through" in never.told[-1]
    (run_dir / "handoff" / "3" / "state.pt").write_bytes(b"")
    engine = FakeEngine(run_dir / "s")
    older = forks.run(train(run_dir, "run.epochs(3)"), run_dir=run_dir, life=6)
    assert older.told[0].startswith("cockpit: hand-off 3 was not used: it is damaged")
    assert older.own[0] == "restored 2 step 6" and older.own[-1] == "done"
    told = engine.of("session")[-1]
    assert (told["restored"], told["step"]) == (2, 6) and told["passed"][0].startswith("hand-off 3 was not used")
    engine.close()


@pytest.mark.long
def test_a_life_that_finds_none_begins_anew_only_where_there_never_was_one(forks, run_dir):
    assert forks.run(train(run_dir), run_dir=run_dir).own[-1] == "done"
    for each in (run_dir / "handoff").glob("[0-9]"):
        (each / "manifest.json").unlink()
    none = forks.run(train(run_dir), run_dir=run_dir, life=7)
    assert none.status == NOT_RESTORED and none.own == [] and "no hand-off in" in none.told[-1]
    shutil.rmtree(run_dir / "handoff")
    first = forks.run(train(run_dir), run_dir=run_dir, life=8)
    assert first.told == ["cockpit: this run has no hand-off yet, so the training begins at epoch 0."]
    assert first.own[-1] == "done"
    shutil.rmtree(run_dir / "handoff")
    (run_dir / "life-9" / "back").mkdir(parents=True)
    (run_dir / "life-9" / "go").write_text('{"handoff": "lost", "epoch": 1}')
    for life in ("9", "9/back"):
        lost = forks.run(train(run_dir), run_dir=run_dir, life=life)
        assert lost.status == NOT_RESTORED and lost.own == [] and "no hand-off in" in lost.told[-1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"methods": "def state_dict(self): raise ValueError('mine')"}, "model gave no state: ValueError: mine"),
        LONG({"methods": "def get_extra_state(self): return lambda: 0"}, "the state of model cannot be pickled:"),
        LONG(
            {"loop": "list(run.epochs(2))"},
            "no step was seen in epoch 1: the loop over run.epochs(n) is not the training's",
        ),
    ],
)
def test_what_cannot_be_written_costs_the_training_nothing(forks, run_dir, words, reason):
    engine = FakeEngine(run_dir / "s")
    path = train(run_dir, **words)
    ran = forks.run(path, run_dir=run_dir)
    assert ran.text == forks.run(path).text and ran.own[-1] == "done", ran.text
    told = engine.wait("handoff", state="failed")
    assert reason in told["reason"] and told["id"] is None
    assert not list((run_dir / "handoff").glob("[0-9]*"))
    engine.close()


@pytest.mark.parametrize("world", ["2", LONG("1")])
def test_several_ranks_are_none_of_it(forks, run_dir, world):
    engine = FakeEngine(run_dir / "s")
    ran = forks.run(train(run_dir), run_dir=run_dir, WORLD_SIZE=world, RANK="0")
    assert ran.own[-1] == "done" and bool(list((run_dir / "handoff").glob("1"))) == (world == "1")
    if world == "2":
        assert "2 ranks" in engine.wait("session")["reason"]
    engine.close()


@pytest.mark.long
def test_one_process_of_a_run_hands_over(forks, run_dir):
    """A shell loop over seeds: what the first has written is not restored into the second."""
    path, engine = train(run_dir), FakeEngine(run_dir / "s")
    forks.run(path, run_dir=run_dir)
    written = (run_dir / "handoff" / "2" / "manifest.json").read_text()
    second = forks.run(path, run_dir=run_dir)
    assert second.text == "restored None step 0\nepoch 0\nepoch 1\ndone\n"
    assert (run_dir / "handoff" / "2" / "manifest.json").read_text() == written
    assert "another process of this run" in engine.of("session")[-1]["reason"]
    assert "come to its end" in (closed(str(run_dir / "handoff")) or ""), "said first"
    engine.close()


@pytest.mark.long
def test_a_second_training_in_one_process_is_a_plain_one(forks, run_dir):
    after = "again = cockpit.session(model=model); print(list(again.epochs(2)), again.restored)"
    assert forks.run(train(run_dir, after=after), run_dir=run_dir).own[-1] == "[0, 1] None"


SPAWNS = """
import multiprocessing, os, sys, torch
from multiprocessing import spawn
from torch import nn
from torch.utils.data import DataLoader
import cockpit
def as_spawned():
    # what `spawn` does in a new process before it calls anything there, in one that has torch already
    pid = os.fork()
    if pid == 0:
        multiprocessing.process.current_process()._inheriting = True
        sys.modules["__main__"].__file__ = None
        spawn.prepare(told)
        os._exit(3 if sys.modules["__main__"].run.restored is None else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
def spawned():
    worker = multiprocessing.get_context("spawn").Process(target=print, args=("worker",))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = cockpit.session(model=model, optimizer=optimizer)
if __name__ == "__main__":
    told = spawn.get_preparation_data("worker")
    told["init_main_from_path"] = os.path.abspath(__file__)
    for epoch in run.epochs(4):
        {how}()
        for x in DataLoader(torch.ones(12, 4), batch_size=4):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        if epoch == {fails}: raise RuntimeError("out of memory, say")
    print("done")
"""


@pytest.mark.parametrize("how", ["as_spawned", LONG("spawned")])
def test_a_spawned_process_that_runs_the_top_of_the_script_again_is_no_second_training(forks, run_dir, how):
    """A loader's worker, a pool: the hand-offs stay those of the one that trains, and are gone on from."""
    (run_dir / "life-2").mkdir()
    for life, fails in ((None, 1), (2, 2)):
        path = script(run_dir / "src", SPAWNS.format(how=how, fails=fails))
        ran = forks.run(path, run_dir=run_dir, life=life)
        assert "RuntimeError: out of memory, say" in ran.text and "AssertionError" not in ran.text, ran.text
        assert closed(str(run_dir / "handoff")) is None
        assert len(list((run_dir / "handoff").glob("[0-9]*"))) >= 1


FOLDS = """
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader
import cockpit
for fold in {folds}:
    torch.manual_seed(fold)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = cockpit.session(model=model, optimizer=optimizer)
    for epoch in run.epochs(3):
        for x in DataLoader(torch.ones(12, 4), batch_size=4):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        if (fold, epoch) == {fails}: raise RuntimeError("out of memory, say")
"""


@pytest.mark.parametrize(
    ("processes", "words"),
    [
        ([("[0]", (0, 1))], None),
        pytest.param([("[0]", (0, 2))], None, marks=pytest.mark.long),
        ([("[0, 1]", (1, 1))], "another one has begun after it"),
        pytest.param([("[0]", None), ("[1]", (1, 1))], "come to its end", marks=pytest.mark.long),
        pytest.param([("[0]", (0, 1)), ("[1]", (1, 1))], "may be any of them", marks=pytest.mark.long),
    ],
)
def test_hand_offs_of_one_training_are_not_gone_on_from_by_another(forks, run_dir, processes, words):
    """Folds, seeds, sweeps, one after the other in one process or several: whichever a new process comes to first
    would begin with what another has learnt."""
    for folds, fails in processes:
        forks.run(script(run_dir / "src", FOLDS.format(folds=folds, fails=fails)), run_dir=run_dir)
    found = closed(str(run_dir / "handoff"))
    assert found is None if words is None else words in (found or ""), found


@pytest.mark.long
def test_a_forked_child_does_not_go_on_with_the_loop(forks, run_dir):
    end = "if epoch == 0 and os.fork() == 0: os.environ['CHILD'] = '1'"
    ran = forks.run(train(run_dir, "run.epochs(3)", end=end), run_dir=run_dir)
    time.sleep(0.5)
    assert ran.own.count("done") >= 1
    pids = {json.loads(each.read_text())["epoch"] for each in (run_dir / "handoff").glob("[0-9]/manifest.json")}
    assert pids == {2, 3}


def test_of_short_epochs_only_some_end_with_one(forks, run_dir):
    """Where nobody named a number; the first that is left out is told of, and each still waits for its turn."""
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1, "handoff_sparing": True}))
    engine = FakeEngine(run_dir / "s")
    path = train(run_dir, "run.epochs(40)")
    ran = forks.run(path, run_dir=run_dir)
    assert ran.text == forks.run(path).text and ran.own[-1] == "done", ran.text
    told = engine.of("handoff")
    written = [m["epoch"] for m in told if m["state"] == "written"]
    assert written[0] == 1 and len(written) < 20, written
    states = [m["state"] for m in told]
    assert states[:2] == ["written", "spared"] and all(a != b for a, b in pairwise(states) if b == "spared")
    assert engine.of("session")[-1]["sparing"] is True
    engine.close()


def wished(forks, run_dir, engine, **wish):
    """A training of 15 short epochs, asked in its first; what it printed."""
    (run_dir / "start.json").write_text("{}")
    ran = []
    path = train(run_dir, "run.epochs(15)", before="import time", end="time.sleep(0.1)")
    thread = threading.Thread(target=lambda: ran.append(forks.run(path, run_dir=run_dir)))
    thread.start()
    engine.wait("session", epochs=15)
    engine.wait("tick", 60)
    engine.send(m="handoff", **wish)
    thread.join(120)
    return ran[0]


@pytest.mark.long
def test_a_wish_is_written_and_another_process_takes_over(forks, run_dir):
    engine, life = FakeEngine(run_dir / "s"), run_dir / "life-2"
    life.mkdir()
    first = wished(forks, run_dir, engine, id="r1", life=str(life))
    states = [m["state"] for m in engine.of("handoff", id="r1")]
    gone, go = engine.wait("handoff", state="gone"), json.loads((life / "go").read_text())
    assert list(dict.fromkeys(states)) == ["queued", "writing", "gone"]
    assert first.status == 0 and "done" not in first.own
    assert go["handoff"] == gone["path"] and go["epochs_left"] == 15 - gone["epoch"] == 15 - go["epoch"]
    assert gone["bytes"] > 0 and gone["seconds"] > 0 and first.own[-1] == f"epoch {gone['epoch'] - 1}"
    told = engine.of("session")[-1]
    assert told["names"] == ["model", "optimizer"] and told["epochs"] == 15
    engine.messages.clear()
    second = forks.run(train(run_dir, f"run.epochs({gone['epoch'] + 2})"), run_dir=run_dir, life=2)
    assert second.own[1:] == [f"epoch {gone['epoch']}", f"epoch {gone['epoch'] + 1}", "done"]
    steps = [m["step"] for m in engine.of("tick")]
    assert steps and max(steps) == gone["step"] + 6 and min(steps) >= gone["step"]
    assert [m["epoch"] for m in engine.of("epoch")] == [gone["epoch"], gone["epoch"] + 1]
    assert engine.of("session")[-1]["restored"] == gone["epoch"]
    engine.close()


@pytest.mark.parametrize(
    ("wish", "state", "reason"),
    [
        LONG({"life": "given-up"}, "failed", "the new process was given up; the hand-off stays"),
        LONG({"life": "nowhere"}, "failed", "the new process could not be told: FileNotFoundError"),
        LONG({"limit_bytes": 100}, "failed", "it would be 1 MB, more than the 1 MB allowed"),
        LONG({}, "written", None),
    ],
)
def test_a_wish_that_ends_otherwise_leaves_the_training_as_it_is(forks, run_dir, wish, state, reason):
    engine = FakeEngine(run_dir / "s")
    (run_dir / "given-up").mkdir()
    (run_dir / "given-up" / "go").write_text('{"refused": "test"}')
    ran = wished(
        forks, run_dir, engine, id="r1", **{k: str(run_dir / v) if k == "life" else v for k, v in wish.items()}
    )
    told = engine.of("handoff", id="r1")[-1]
    assert ran.own[-1] == "done" and told["state"] == state
    assert (told["reason"] or "").startswith(reason or "") and bool(told["reason"]) == bool(reason)
    assert bool(list((run_dir / "handoff").glob("1"))) == ("limit_bytes" not in wish)
    assert engine.of("session")[-1]["reason"] == "the script's loop over run.epochs(n) has ended"
    engine.close()


@pytest.mark.long
def test_an_early_end_of_the_loop_answers_what_waits(forks, run_dir):
    engine = FakeEngine(run_dir / "s")
    (run_dir / "start.json").write_text("{}")
    end = f"import time; time.sleep(0.05)\n        if os.path.exists('{run_dir}/stop'): break"
    path, ran = train(run_dir, "run.epochs(10_000)", end=end, after="time.sleep(0.6)"), []
    thread = threading.Thread(target=lambda: ran.append(forks.run(path, run_dir=run_dir)))
    thread.start()
    engine.wait("tick", 60)
    (run_dir / "stop").touch()
    engine.wait("session", reason="the script's loop over run.epochs(n) has ended")
    engine.send(m="handoff", id="late")
    thread.join(60)
    assert engine.wait("handoff", id="late", state="failed")["reason"].startswith("the script's loop")
    assert ran[0].own[-1] == "done"
    engine.close()


@pytest.mark.long
def test_hand_offs_leave_no_trace_in_the_training(forks, run_dir):
    """Written at every epoch's end: what it prints is what it prints bare."""
    flags = ("--epochs", 3, "dropout", "own", "workers", "validation")
    assert forks.run(HANDED, *flags, run_dir=run_dir).text == forks.run(HANDED, *flags).text
    left = {name for name in os.listdir(run_dir / "handoff") if not name.isdigit()}
    assert "life-1.pid" in left <= {"life-1.pid", "began", "closed"}, "and nothing half written"

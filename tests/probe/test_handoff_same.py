"""A training that is handed from process to process prints what an uninterrupted, bare one prints, to the bit."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake_engine import ROOT, FakeEngine

HANDED = ROOT / "tests" / "trainers" / "handed.py"


def chain(forks, run_dir, flags, ends=(1, 3, 4), script=HANDED):
    """The output of an uninterrupted bare run, and of one life after the other, each of so many epochs."""
    run_dir.mkdir()
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1}))
    bare = forks.run(script, "--epochs", ends[-1], *flags)
    assert bare.status == 0, bare.text
    lives = []
    for number, epochs in enumerate(ends, 1):
        ran = forks.run(script, "--epochs", epochs, *flags, run_dir=run_dir, life=number if number > 1 else None)
        assert ran.status == 0, ran.text
        lives.append(ran)
    return bare, lives


def check(bare, lives):
    got = [line for ran in lives for line in ran.own if not line.startswith("FINAL")]
    assert [*got, lives[-1].own[-1]] == bare.own
    assert not lives[0].told and all("goes on from hand-off" in ran.told[0] for ran in lives[1:])


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [
        "dropout validation augment",
        "sgd lambda own workers scaler ema dropout validation",
        "persistent eager own dropout",
        "persistent validation dropout sgd",
        "shared workers dropout",
        "anew dropout lambda rare",
    ],
)
def test_losses_are_those_of_an_uninterrupted_run(forks, tmp_path, flags):
    check(*chain(forks, tmp_path / "run", flags.split()))


MODELS = ["", "sgd", "lambda", "sgd lambda scaler", "ema scaler dropout"]
ORDERS = ["", "own", "shared", "anew", "eager", "eager own"]
WORKERS = ["", "workers", "persistent"]


@pytest.mark.long
@pytest.mark.parametrize("words", [" ".join(each) for each in itertools.product(MODELS, ORDERS, WORKERS)])
def test_every_kind_of_training_is_handed_over(forks, tmp_path, words):
    flags = [*words.split(), "dropout", "validation"]
    if "persistent" not in flags:  # random numbers in persistent workers cannot be those of before
        flags.append("augment")
    check(*chain(forks, tmp_path / "run", flags))


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "knobs"),
    [
        ("own eager", {"num_workers": 2, "persistent_workers": True}),
        ("persistent eager own", {"num_workers": 1}),
        ("own eager", {"num_workers": 2}),
        ("persistent eager own", {"num_workers": 0}),
        ("workers shared", {"num_workers": 0}),
    ],
)
def test_with_other_loader_settings_set_from_the_start(forks, tmp_path, knobs, flags):
    """The next life begins with what is in force: its first epoch draws what it would have drawn in the one before."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1, "set": knobs}))
    bare = forks.run(HANDED, "--epochs", 3, *flags.split())
    first = forks.run(HANDED, "--epochs", 1, *flags.split(), run_dir=run_dir)
    life = run_dir / "life-2"
    life.mkdir()
    (life / "start.json").write_text((run_dir / "start.json").read_text())
    second = forks.run(HANDED, "--epochs", 3, *flags.split(), run_dir=run_dir, life=2)
    check(bare, [first, second])


CHANGES = [
    ("", {"num_workers": 2}),
    ("own", {"num_workers": 1, "persistent_workers": True}),
    ("eager own", {"num_workers": 2, "prefetch_factor": 3}),
    ("workers", {"num_workers": 0}),
    ("workers own", {"prefetch_factor": 4}),
    ("workers shared", {"num_workers": 1}),
    ("workers anew", {"num_workers": 0}),
    ("persistent own", {"num_workers": 0}),
    ("persistent eager", {"num_workers": 1}),
    ("persistent", {"persistent_workers": False}),
]


@pytest.mark.parametrize(
    ("flags", "knobs", "now"),
    [
        pytest.param(*each, now, marks=() if (each, now) in ((CHANGES[2], True),) else pytest.mark.long)
        for each in CHANGES
        for now in (True, False)
    ],
)
def test_with_what_was_set_while_it_trained(forks, tmp_path, flags, knobs, now):
    """Changed in the second epoch, in its middle or at its end, and handed over with that in force soon after."""
    run_dir, words = tmp_path / "run", [*flags.split(), "dropout", "validation"]
    life = run_dir / "life-2"
    life.mkdir(parents=True)
    engine = FakeEngine(run_dir / "s")
    holds = [word for epoch in (1, 3) for word in ("--hold", f"{epoch}:{run_dir}/{epoch}")]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(forks.run, HANDED, "--epochs", 6, *holds, *words, run_dir=run_dir)
        engine.wait("session", 240, epochs=6)
        engine.wait("tick", step=7)
        engine.ask("c1", now=now, **knobs)
        engine.send(m="handoff_every", n=1000)
        engine.wait("session", every=1000)  # so what was asked before has been heard
        (run_dir / "1").touch()
        landed = engine.wait("change", id="c1", state="settling")
        engine.send(m="handoff", id="h1", life=str(life))
        engine.wait("handoff", id="h1", state="queued")
        (run_dir / "3").touch()
        first = running.result()
    assert landed["in_force"].items() >= knobs.items() and first.status == 0, first.text
    assert json.loads((life / "go").read_text())["epoch"] in (2, 3, 4)
    (life / "start.json").write_text(json.dumps({"set": knobs}))
    second = forks.run(HANDED, "--epochs", 6, *words, run_dir=run_dir, life=2)
    check(forks.run(HANDED, "--epochs", 6, *words), [first, second])
    engine.close()

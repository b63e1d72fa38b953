"""A training that is handed from process to process prints what an uninterrupted, bare one prints, to the bit."""

from __future__ import annotations

import itertools
import json

import pytest
from fake_engine import ROOT
from forked import Forks

HANDED = ROOT / "tests" / "trainers" / "handed.py"


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    forks = Forks(ROOT, tmp_path_factory.mktemp("out"))
    yield forks
    forks.close()


def chain(forks, run_dir, flags, ends=(1, 3, 4)):
    """The output of an uninterrupted bare run, and of one life after the other, each of so many epochs."""
    run_dir.mkdir()
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1}))
    bare = forks.run(HANDED, "--epochs", ends[-1], *flags)
    assert bare.status == 0, bare.text
    lives = []
    for number, epochs in enumerate(ends, 1):
        ran = forks.run(HANDED, "--epochs", epochs, *flags, run_dir=run_dir, life=number if number > 1 else None)
        assert ran.status == 0, ran.text
        lives.append(ran)
    return bare, lives


def check(bare, lives):
    got = [line for ran in lives for line in ran.own if not line.startswith("FINAL")]
    assert [*got, lives[-1].own[-1]] == bare.own
    assert not lives[0].told and all("goes on from hand-off" in ran.told[0] for ran in lives[1:])


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


@pytest.mark.parametrize(
    ("flags", "knobs"),
    [
        ("own eager", {"num_workers": 2, "persistent_workers": True}),
        ("persistent eager own", {"num_workers": 1}),
        pytest.param("own eager", {"num_workers": 2}, marks=pytest.mark.long),
        pytest.param("persistent eager own", {"num_workers": 0}, marks=pytest.mark.long),
        pytest.param("workers shared", {"num_workers": 0}, marks=pytest.mark.long),
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

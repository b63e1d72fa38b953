"""kill -9 at any moment of a hand-off: there is always a whole one, and the next life goes on from it and says so."""

from __future__ import annotations

import json
import random
import re

import pytest
from fake_engine import ROOT

HANDED = ROOT / "tests" / "trainers" / "handed.py"
ARGS = ("--epochs", 5, "--mega", 20, "dropout")


def killed_and_resumed(forks, folder, bare, chance):
    """One try: killed while the second, third or fourth hand-off is being written, or right before or after it."""
    folder.mkdir()
    (folder / "start.json").write_text(json.dumps({"handoff_every": 1}))
    number = chance.choice((2, 3, 4))
    moment = chance.choice((0.0, chance.uniform(0, 0.02), chance.uniform(0, 0.15), chance.uniform(0, 0.6)))
    first = forks.run(HANDED, *ARGS, run_dir=folder, kill=(str(folder / "handoff" / f"{number}.new"), moment))
    second = forks.run(HANDED, *ARGS, run_dir=folder, life=2)
    assert second.status == 0, second.text
    if first.status == 0:  # it was over by then
        return
    assert first.status == 137
    done = int(re.search(r"goes on from hand-off (\d+): epoch \1,", second.told[0]).group(1))
    assert done >= number - 1 and len(second.told) == 1
    begun = 1 + max(int(line.split()[1]) for line in first.own if line.startswith("epoch"))
    assert done in (begun, begun - 1)
    left = [line for line in bare.own if not line.startswith("epoch") or int(line.split()[1]) >= done]
    assert second.own == left
    assert not list((folder / "handoff").glob("*.new"))


@pytest.fixture(scope="module")
def bare(forks):
    return forks.run(HANDED, *ARGS)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_killed_in_the_middle(forks, tmp_path, bare, seed):
    killed_and_resumed(forks, tmp_path / "run", bare, random.Random(seed))


@pytest.mark.long
@pytest.mark.parametrize("ten", range(100, 200, 10))
def test_killed_a_hundred_times(forks, tmp_path, bare, ten):
    for seed in range(ten, ten + 10):
        killed_and_resumed(forks, tmp_path / f"run-{seed}", bare, random.Random(seed))

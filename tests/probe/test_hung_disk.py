"""The run's folder may lie on a file system that does not answer: no step and no exit of the training waits for it."""

from __future__ import annotations

import json
import os
import threading

import pytest
from fake_engine import script

from cockpit.probe.pulse import Pulse

TRAIN = """
    import os, torch
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(torch.ones({steps} * 4, 4), batch_size=4):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    {end}
    print("done")
"""


@pytest.mark.parametrize("steps", [40, pytest.param(0, marks=pytest.mark.long)])
@pytest.mark.parametrize("end", ["pass", pytest.param("raise RuntimeError('mine')", marks=pytest.mark.long)])
def test_no_exit_and_no_step_waits_for_it(forks, tmp_path, steps, end):
    """A pipe that nobody writes to: whoever opens it to read waits for ever."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "start.json").write_text("{}")
    os.mkfifo(tmp_path / "run" / "left.json")
    path = script(tmp_path, TRAIN.format(steps=steps, end=end))
    ran = forks.run(path, run_dir=tmp_path / "run")
    bare = forks.run(path)
    assert (ran.status, ran.text) == (bare.status, bare.text)


@pytest.mark.long
def test_the_word_is_there_when_the_disk_answers(forks, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "start.json").write_text("{}")
    for steps in (40, 0):
        path = script(tmp_path, TRAIN.format(steps=steps, end="raise RuntimeError('mine')"))
        assert forks.run(path, run_dir=tmp_path / "run").status == 1
        left = json.loads((tmp_path / "run" / "left.json").read_text())
        assert (left["trains"], left["error"]) == (steps > 0, None), "nothing has been thrown but in the harness"


@pytest.mark.parametrize("started", [True, False])
def test_what_never_returns_is_waited_for_so_long_and_no_longer(started):
    never, done = threading.Event(), []
    pulse = Pulse(lambda: None, lambda: None)
    pulse.first = lambda: done.append("first")
    if started:
        pulse.start()
    pulse.finish(lambda: done.append("work") or never.wait(600.0), 0.05)
    assert done == ["first", "work"][not started :] and not never.is_set()
    never.set()

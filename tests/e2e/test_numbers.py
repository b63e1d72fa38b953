"""The numbers that are shown are true: a training that times itself, compared with what cockpit says of it."""

from __future__ import annotations

import json
from pathlib import Path

from support.bare import command_of
from support.outcome import TRAINERS
from support.under import run_under

NEAR = 0.2
"""What both clocks may differ by, as a share: cockpit tells the newest blocks, the script the mean of all its steps."""
TINY_MS = 0.7


def test_phases_and_throughput_as_the_script_measures_them(state_dir: Path) -> None:
    done = run_under(command_of(TRAINERS / "self_timed.py"), state_dir)
    assert done.status == 0, done.text[-2000:]
    line = next(line for line in done.text.splitlines() if line.startswith("TIMES "))
    times, report = json.loads(line.removeprefix("TIMES ")), done.report
    assert report is not None
    assert report["step"] == times["steps"]
    phases = report["phases_ms"]
    for name in ("wait", "forward", "backward", "optimizer", "other"):
        assert near(phases[name], times[f"{name}_ms"]), (name, phases, times)
    whole = sum(phases[name] for name in ("wait", "start", "forward", "backward", "optimizer", "other"))
    assert near(whole, times["step_ms"]), (phases, times)
    assert near(report["samples_per_s"], times["samples_per_s"]), (report["samples_per_s"], times)


def near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= NEAR * theirs + TINY_MS

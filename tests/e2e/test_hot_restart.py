"""Hot restarts of a real training through the command line: not one loss differs, and what fails comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of, run_bare
from support.outcome import REPO, TRAINERS
from support.under import ask, detached, status, wait_until

SCRIPT = TRAINERS / "restarted.py"
PAUSE = {"PAUSE_S": "0.02", "EPOCHS": "24", "PYTHONPATH": str(REPO)}
"""The last: the script's own cockpit is this one, whatever is installed."""


def begun(scratch: Path) -> None:
    wait_until(lambda: status(scratch)["step"], "steps", 120)


def log(data: Path) -> str:
    return (data / "output.log").read_text(errors="replace")


def end(data: Path, timeout_s: float = 240) -> int:
    """The exit status of the last process."""
    from cockpit.engine.processes import read_exit
    from cockpit.engine.rundir import rundir_at

    found = wait_until(lambda: read_exit(rundir_at(data)), "the end", timeout_s)
    return int(found[0])


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if " loss " in line or line.startswith("FINAL ")]


def bare(tmp_path: Path, env: dict[str, str]) -> list[str]:
    folder = tmp_path / "bare"
    folder.mkdir()
    return losses(run_bare(command_of(SCRIPT), folder, env).text)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_every_loss_is_that_of_one_process(state_dir: Path, tmp_path: Path, workers: str) -> None:
    env = {**PAUSE, "LIVES": "2", "WORKERS": workers}
    with detached(command_of(SCRIPT), state_dir, env=env) as data:
        begun(state_dir)
        waited = ask(state_dir, "restart", "--wait", "--env", "MINE=7", timeout_s=280)
        entry: dict[str, Any] = json.loads(waited.stdout)
        assert end(data) == 0
    assert entry["change"] == {"env MINE": [None, "7"]} and entry["reason"] is None, (entry, waited.stderr)
    assert entry["at_step"] % 6 == 0 and entry["stall_ms"] > 0 and "torch is imported" in entry["note"]
    assert (data / "life-2" / "stepped").exists() and "MB of its own" in entry["note"]
    ours = losses(log(data))
    assert ours == bare(tmp_path, env)
    assert len(ours) == 24 * 6 + 1


def test_an_environment_under_which_it_fails_gives_way_to_that_of_before(state_dir: Path, tmp_path: Path) -> None:
    env = {**PAUSE, "LIVES": "2"}
    with detached(command_of(SCRIPT), state_dir, env=env) as data:
        begun(state_dir)
        waited = ask(state_dir, "restart", "--wait", "--env", "FAIL=1", timeout_s=280)
        assert waited.returncode == 1
        entry = json.loads(waited.stdout)
        assert end(data) == 0
    assert entry["outcome"] == "rolled_back" and "status 9 before its first step" in entry["reason"]
    assert losses(log(data)) == bare(tmp_path, env)


def test_refused_where_it_would_begin_anew(state_dir: Path) -> None:
    with detached(command_of(TRAINERS / "forever.py"), state_dir, env={"PAUSE_S": "0.02", "EPOCHS": "10000"}):
        begun(state_dir)
        refused = ask(state_dir, "restart", "--env", "MINE=7")
        assert refused.returncode == 1 and "does not call cockpit.session" in refused.stderr
        assert "steps" in refused.stderr and "would be lost" in refused.stderr
        wrong = ask(state_dir, "restart", "--env", "MINE")
        assert wrong.returncode == 2 and "NAME=VALUE" in wrong.stderr

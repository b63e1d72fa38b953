"""Workers of ours that still come up as the training is stopped, or dies: none of them is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of
from support.outcome import TRAINERS
from support.under import ask, detached, processes_of, status, wait_until

IMPORT_S = 4.0
SPAWNED = b"--multiprocessing-fork"


def coming_up(scratch: Path) -> list[int]:
    """Children that multiprocessing has started and that are no loader workers yet."""
    found = []
    for pid in processes_of(scratch):
        try:
            name, command = Path(f"/proc/{pid}/comm").read_text(), Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if not name.startswith("pt_data_worker") and (SPAWNED in command or b"multiprocessing.forkserver" in command):
            found.append(pid)
    return found


def end(scratch: Path, how: str) -> None:
    if how == "killed":
        os.kill(status(scratch)["pid"], signal.SIGKILL)
        return
    words = ["--force"] if how == "force" else []
    answer = ask(scratch, "stop", "it", *words)
    assert answer.returncode == 0, answer.stderr


def check(scratch: Path, method: str, how: str) -> None:
    env = {"METHOD": method, "IMPORT_S": str(IMPORT_S)}
    with detached(command_of(TRAINERS / "late_workers.py"), scratch, env=env):
        wait_until(lambda: status(scratch)["step"], "a step")
        ask(scratch, "set", "it", "num_workers=2", "--now")
        wait_until(lambda: coming_up(scratch), "a worker that comes up", every_s=0.02)
        end(scratch, how)

        def over() -> Any:
            return status(scratch)["state"] in ("ended", "stopped", "failed", "lost", "killed")

        wait_until(over, "the end")
        wait_until(lambda: not processes_of(scratch), "nobody left", timeout_s=3 * IMPORT_S + 10)


@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("how", ["stop", "force", "killed"])
def test_none_is_left_however_they_are_started_and_it_ends(state_dir: Path, method: str, how: str) -> None:
    check(state_dir, method, how)

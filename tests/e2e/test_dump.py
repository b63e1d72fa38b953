"""``cockpit dump`` on a real run: the training's threads, workers that a change has made, and who cannot be asked."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of
from support.outcome import TRAINERS
from support.under import ask, detached, peek, status, wait_until

LONG = {"EPOCHS": "20", "SAMPLES": "4000", "PAUSE_S": "0.05"}


def dump(scratch: Path, expect: int = 0) -> dict[str, Any]:
    """The one process that a dump tells of."""
    done = ask(scratch, "dump", "it", "--json")
    assert done.returncode == expect, done.stderr
    (process,) = json.loads(done.stdout)["processes"]
    return process


def workers_of(process: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in process["parts"] if part["title"].startswith("worker ")]


def all_load(process: dict[str, Any]) -> bool:
    """Whether both workers stand in the dataset's own code."""
    found = [any('toy.py"' in line and "__getitem__" in line for line in part["lines"]) for part in workers_of(process)]
    return found == [True, True]


def begun(scratch: Path, workers: int) -> Any:
    def look() -> Any:
        told = status(scratch)
        return told if told["step"] and [each["workers_alive"] for each in told["loaders"]] == [workers] else None

    return wait_until(look, f"a run with {workers} workers")


def test_threads_and_workers_of_a_change_say_where_they_stand(state_dir: Path) -> None:
    with detached(command_of(TRAINERS / "plain.py"), state_dir, env=LONG):
        begun(state_dir, 0)
        assert ask(state_dir, "set", "it", "num_workers=2", "--now").returncode == 0
        told = begun(state_dir, 2)
        # a worker that is asked just between two samples is at none: seldom, and not three times
        process = next(filter(all_load, (dump(state_dir) for _ in range(3))))
        assert process["pid"] == told["pid"] and process["answered"]
        first = process["parts"][0]
        assert "which trains" in first["title"]
        assert any('plain.py"' in line and "<module>" in line for line in first["lines"])
        seen = ask(state_dir, "dump", "it")
        assert seen.returncode == 0 and "plain.py" in seen.stdout and "toy.py" in seen.stdout
        after = status(state_dir)
        assert after["state"] == "running" and after["loaders"][0]["workers_alive"] == 2
        assert wait_until(lambda: peek(state_dir)["step"] > after["step"], "a step after the dump")


@pytest.mark.long
def test_a_training_that_is_stopped_is_told_as_the_kernel_sees_it(state_dir: Path) -> None:
    with detached(command_of(TRAINERS / "plain.py"), state_dir, env=LONG):
        pid = begun(state_dir, 0)["pid"]
        os.kill(pid, signal.SIGSTOP)
        done = ask(state_dir, "dump", "it")
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert f"process {pid}: no answer" in done.stdout and "stopped by a signal" in done.stdout


@pytest.mark.long
def test_the_scripts_own_workers_are_left_alone_and_it_says_so(state_dir: Path) -> None:
    with detached(command_of(TRAINERS / "persistent.py"), state_dir, env=LONG):
        told = wait_until(lambda: (lambda s: s if s["step"] else None)(peek(state_dir)), "a step")
        own = told["loaders"][0]["workers_alive"]
        process = dump(state_dir)
        assert own > 0 and len(workers_of(process)) == own
        for worker in workers_of(process):
            assert "the script's own worker" in worker["title"] and worker["lines"] == []
        assert status(state_dir)["loaders"][0]["workers_alive"] == own

"""Something of ours fails in the middle of a change: the training prints what it prints bare, and the truth is told.

Real processes and signals: the engine is stopped and killed, its disk is full, its socket goes, its keeper is killed,
each while a change is on its way. The screen's own ends are in ``test_tmux``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of, run_bare
from support.outcome import TRAINERS, Outcome, difference
from support.under import ask, detached, peek, wait_until

from cockpit.cli.runs import ask as ask_engine
from cockpit.cli.runs import state_of
from cockpit.engine.processes import is_alive, read_pids
from cockpit.engine.rundir import RunDir, rundir_at
from cockpit.engine.start import answers
from cockpit.history.journal import read_state
from cockpit.history.state import State

COMMAND = command_of(TRAINERS / "slow.py")
STEPS = 50
"""Steps in an epoch."""


def env_of(state_dir: Path) -> dict[str, str]:
    """Held back by its loader; it ends with the epoch in which the file ``enough`` appears."""
    return {"SAMPLES": str(STEPS * 8), "PAUSE_S": "0.002", "EPOCHS": "100000", "UNTIL": str(state_dir / "enough")}


def engine_of(run: RunDir) -> int:
    """The pid at the other end of the run's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.connect(str(run.socket))
        return int(
            struct.unpack("3i", wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
        )


def in_force(run: RunDir, workers: int, changes: int) -> State | None:
    """The state, once the newest of so many changes has brought so many workers."""
    state = state_of(run)
    newest = state.ledger[-1] if len(state.ledger) == changes else None
    landed = newest is not None and newest.state in ("settling", "kept") and newest.change is not None
    return state if landed and newest.change["num_workers"][1] == workers else None  # type: ignore[union-attr, index]


def epochs_in(log: Path) -> int:
    return sum(line.startswith(b"epoch ") for line in log.read_bytes().splitlines())


def goes_on(log: Path, epochs: int = 1) -> None:
    """The training ends so many more epochs."""
    had = epochs_in(log)
    wait_until(lambda: epochs_in(log) >= had + epochs, "the training goes on", every_s=0.05)


def bare_of(output: bytes, folder: Path) -> Outcome:
    """The bare script over as many epochs; it need not be slow to print the same."""
    epochs = sum(line.startswith(b"epoch ") for line in output.splitlines())
    folder.mkdir()
    return run_bare(COMMAND, folder, {"SAMPLES": str(STEPS * 8), "EPOCHS": str(epochs)})


def check_output(output: bytes, folder: Path) -> None:
    bare = bare_of(output, folder)
    assert bare.status == 0 and output == bare.output, difference(Outcome(0, output), bare)


# ---- what strikes ----


def stop_engine(run: RunDir, asks: Callable[[int], Any]) -> None:
    """The change lands while the engine is stopped (it is on the training's own schedule)."""
    engine = engine_of(run)
    os.kill(engine, signal.SIGSTOP)
    try:
        goes_on(run.output, 2)
    finally:
        os.kill(engine, signal.SIGCONT)


def kill_engine(run: RunDir, asks: Callable[[int], Any]) -> None:
    """Right after it has taken the change, which waits for the epoch's end."""
    asks(1)
    engine = engine_of(run)
    os.kill(engine, signal.SIGKILL)
    wait_until(lambda: not is_alive(engine, None), "its end", every_s=0.02)
    goes_on(run.output)


def fill_disk(run: RunDir, asks: Callable[[int], Any]) -> None:
    """No write of the engine's succeeds while the change is asked for, lands and is told of."""
    engine = engine_of(run)
    before = resource.prlimit(engine, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    try:
        asks(3)
        wait_until(lambda: in_force(run, 3, 3), "the change, with a full disk")
        recorded = read_state(run.data)
        assert recorded is not None and len(recorded.ledger) == 2, "nothing of it can have been written"
    finally:
        resource.prlimit(engine, resource.RLIMIT_FSIZE, before)


def lose_socket(run: RunDir, asks: Callable[[int], Any]) -> None:
    """Somebody cleans up /tmp right after the change was asked for."""
    asks(2)
    run.socket.unlink()
    run.pointer.unlink()
    wait_until(lambda: answers(run), "it is bound again", every_s=0.05)


def kill_keeper(run: RunDir, asks: Callable[[int], Any]) -> None:
    """Nobody will know the exit status; everything else goes on."""
    asks(0)
    pids = read_pids(run)
    assert pids is not None
    os.kill(pids.keeper, signal.SIGKILL)
    goes_on(run.output)


STRIKES = ((stop_engine, 2), (kill_engine, 1), (fill_disk, 3), (lose_socket, 2), (kill_keeper, 0))
"""What strikes, and how many workers the change in whose middle it strikes has to bring."""


def test_each_of_our_processes_fails_in_the_middle_of_a_change(state_dir: Path) -> None:
    options = ("--at", f"step:{STEPS + 10}", "num_workers=2")
    with detached(COMMAND, state_dir, options, env_of(state_dir)) as data:
        run = rundir_at(data)

        def asks(workers: int) -> None:
            answer = ask_engine(run, "set", knobs={"num_workers": workers})
            assert answer["id"], answer

        wait_until(lambda: state_of(run).step, "its first step", every_s=0.05)
        for number, (strike, workers) in enumerate(STRIKES, start=1):
            strike(run, asks)
            wait_until(lambda: in_force(run, workers, number), f"the change after {strike.__name__}")  # noqa: B023
        (state_dir / "enough").touch()
        ended = wait_until(lambda: (told := peek(state_dir))["state"] == "lost" and told, "its end")
        output = run.output.read_bytes()
        assert ended["exit_status"] is None and len(ended["ledger"]) == len(STRIKES)
        assert [entry["change"]["num_workers"] for entry in ended["ledger"]] == [[0, 2], [2, 1], [1, 3], [3, 2], [2, 0]]
        assert " lost " in ask(state_dir, "ls").stdout
        assert ended["events_dropped"] == 0 and ended["survivors"] == []
    check_output(output, state_dir / "bare")


@pytest.mark.long
def test_the_runs_folder_is_deleted_in_the_middle_of_a_change(state_dir: Path) -> None:
    """Nothing can be told any more, and nothing is left behind; the training goes on to its end."""
    with detached(COMMAND, state_dir, (), env_of(state_dir)) as data:
        run = rundir_at(data)
        wait_until(lambda: state_of(run).step, "its first step", every_s=0.05)
        pids = read_pids(run)
        assert pids is not None
        ask_engine(run, "set", knobs={"num_workers": 2})
        with run.output.open("rb") as output:
            shutil.rmtree(run.data)
            gone = ask(state_dir, "status", "it")
            assert gone.returncode == 3 and "no runs yet" in gone.stderr
            read = b""
            had, engine = 0, engine_of(run)
            while had < 4:
                time.sleep(0.1)
                read += output.read()
                had = sum(line.startswith(b"epoch ") for line in read.splitlines())
            (state_dir / "enough").touch()
            wait_until(lambda: not is_alive(pids.training, None), "the training's end")
            read += output.read()
        wait_until(lambda: not is_alive(pids.keeper, None), "the keeper gives up", 90)
        wait_until(lambda: not is_alive(engine, None), "the engine leaves", 30)
        with contextlib.suppress(FileNotFoundError):
            assert not list(run.data.iterdir())
    check_output(read, state_dir / "bare")

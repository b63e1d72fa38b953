"""The engine's process, from its first line to its last. Called by ``__main__`` with the two folders of a run.

Leaves its starter's session, makes sure that it is the only engine of the run, starts the keeper (where stdin holds a
plan) or takes a running training over, and says one word on stdout: fine, or a sentence why not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cockpit.history.journal import Journal, read_state
from cockpit.history.state import State
from cockpit.model.errors import CockpitError, StartError
from cockpit.model.events import RunStarted, TrainingEnded
from cockpit.sensors.gpu.reader import NvmlReader
from cockpit.sensors.machine import Machine
from cockpit.sensors.procfs import read_stat

from . import processes, prune
from .engine import Engine
from .launch import bare_environment
from .record import Record
from .rundir import RunDir, rundir_at, write_json
from .runs import look
from .verbs import PASSED_ON, note_signal

KEEPER = Path(__file__).with_name("keeper.py")


def main() -> None:
    """See above; the exit status means nothing, since nobody waits for it."""
    plan = sys.stdin.buffer.read()
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    for number in PASSED_ON.values():
        signal.signal(number, note_signal)
    run = rundir_at(Path(sys.argv[1]), Path(sys.argv[2]))
    if not plan and look(run).state == "starting":
        # its own engine is on its way, and that alone knows what to start: it must find the lock free
        say({"ok": True, "other": True})
        return
    with open(run.lock, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            taken = {"ok": False, "error": f"another engine has taken {run.name}", "code": StartError.code}
            say(taken if plan else {"ok": True, "other": True})
            return
        try:
            asyncio.run(serve(run, plan))
        except CockpitError as error:
            say({"ok": False, "error": str(error), "code": error.code})
        except OSError as error:
            say(
                {
                    "ok": False,
                    "error": f"the engine cannot work in {run.data}: {error}",
                    "code": StartError.code,
                }
            )


async def serve(run: RunDir, plan: bytes) -> None:
    """Everything after the lock is ours."""
    facts = run.facts()
    state = read_state(run.data) or State()
    record = Record(state, Journal(run.data, state))
    if not state.run:
        setup, loaders, variables = facts.get("setup"), facts.get("loaders"), facts.get("environment")
        record.happen(
            RunStarted(
                float(facts.get("started_s") or time.time()),
                run=run.name,
                argv=tuple(facts.get("argv", ())),
                cwd=str(facts.get("cwd", "")),
                script=str(facts.get("script", "")),
                setup=setup if isinstance(setup, dict) else {},
                loaders=loaders if isinstance(loaders, dict) else {},
                environment=variables if isinstance(variables, dict) else None,
            )
        )
    stat = read_stat(processes.PROC, os.getpid())
    with contextlib.suppress(OSError):  # a full disk is no reason to be without an engine
        write_json(run.engine_file, {"pid": os.getpid(), "started_ticks": stat.started_ticks if stat else None})
    asyncio.get_running_loop().set_exception_handler(note_failures())
    engine = Engine(run, record, Machine(mark=processes.mark_of(run)), NvmlReader())
    await engine.server.listen()
    try:
        keeper = await start_keeper(run, plan) if plan else None
    except StartError as error:
        record.happen(TrainingEnded(time.time(), error.code))
        engine.server.close()
        raise
    engine.training_began()
    say({"ok": True})
    if plan:
        prune.old_runs(run, time.time())
    await engine.run()
    if keeper is not None:
        keeper.poll()


def note_failures() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A mistake of ours in a connection's callback goes to the log, the first hundred times, and harms nobody."""
    left = iter(range(100))

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if next(left, None) is not None:
            loop.default_exception_handler(context)

    return note


async def start_keeper(run: RunDir, plan: bytes) -> subprocess.Popen[bytes]:
    """Start the training through its keeper; raises StartError (125, 126, 127) where it did not come to life."""
    if not run.claim_start():
        raise StartError("whoever wanted it has given up waiting")
    with open(run.engine_log, "ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(run.data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            env=bare_environment(os.environ),
            start_new_session=True,
        )
    assert keeper.stdin is not None
    with keeper.stdin:
        keeper.stdin.write(plan)
    # however long it takes on a busy machine: a keeper that lives will start it, and nobody must think otherwise
    while not run.pids.exists():
        ended = processes.read_exit(run)
        if ended is not None:
            raise StartError(ended[1] or f"the training ended with {ended[0]} before it began", ended[0])
        if keeper.poll() is not None:
            raise StartError(f"the training's keeper died at its start: see {run.engine_log}")
        await asyncio.sleep(0.003)
    return keeper


def say(word: dict[str, object]) -> None:
    """The one line that ``start`` waits for; afterwards stdout is nobody's."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(word).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)

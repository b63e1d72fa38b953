"""A run without a screen: progress to stderr, the report to stdout, the training's exit status passed on.

Ctrl-C (or SIGTERM, as CI systems send it) asks for a soft stop and goes on watching; a second one leaves the
training to itself. A hang-up only ends the watching.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

from cockpit.history.report import report_of, text_of
from cockpit.history.state import State
from cockpit.model.errors import CockpitError, LinkLost

from .follow import Following
from .outcome import exit_status_of, last_output
from .progress import Progress
from .runs import Run

STOP_TRIES, STOP_PAUSE_S = 20, 0.5


def watch(run: Run, *, quiet: bool, as_json: bool) -> int:
    """Watch ``run`` to its end and report; its exit status, 0 when it was left to itself."""
    state = asyncio.run(_until_end(run, quiet=quiet))
    if state is None:
        print(f"cockpit: left; the training goes on: cockpit attach {run.name}", file=sys.stderr)
        return 0
    status = exit_status_of(state)
    if as_json:
        print(json.dumps(report_of(state, state.at_s)))
    else:
        if status and not quiet:
            for line in last_output(run.output):
                print(f"  | {line}", file=sys.stderr)
        print("\n".join(text_of(state, state.at_s)))
    return status


async def _until_end(run: Run, *, quiet: bool) -> State | None:
    """The state at the end; None when the person left before it."""
    following, progress = Following(run), Progress(run.facts())
    leave = asyncio.Event()
    _listen(following, leave)
    watching = asyncio.create_task(_watch(following, progress, quiet=quiet))
    leaving = asyncio.create_task(leave.wait())
    try:
        await asyncio.wait({watching, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return watching.result() if watching.done() else None
    finally:
        for task in (watching, leaving):
            task.cancel()
        await asyncio.gather(watching, leaving, return_exceptions=True)
        await following.close()


async def _watch(following: Following, progress: Progress, *, quiet: bool) -> State:
    state: State | None = None
    async for state in following.states():
        if not quiet:
            for line in progress.said(state, time.time()):
                print(line, file=sys.stderr, flush=True)
    if state is None:
        raise LinkLost("the engine of this run said nothing")
    return state


def _listen(following: Following, leave: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    asked: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if asked:
            leave.set()
            return
        print("cockpit: stopping softly, the training may save; once more leaves it running", file=sys.stderr)
        asked.append(loop.create_task(_stop(following)))

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, interrupted)
    loop.add_signal_handler(signal.SIGHUP, leave.set)


async def _stop(following: Following) -> None:
    for _ in range(STOP_TRIES):
        if following.link is not None:
            try:
                await following.link.command("stop")
                return
            except LinkLost:
                pass  # between two engines: the next one is asked
            except CockpitError as error:
                print(f"cockpit: {error}", file=sys.stderr)
                return
        await asyncio.sleep(STOP_PAUSE_S)

"""Signals that a scheduler sends to the process that it started, some minutes before the time is over: the training's.

Used by ``run`` around the screen and around watching without one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from cockpit.model.errors import CockpitError

from .runs import Run, ask

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)
TOLD_ALL_S = 0.3
"""Who tells every process of a job is through with them by then, and the engine knows that it was told, too."""


@contextlib.contextmanager
def passed_on(run: Run) -> Iterator[None]:
    """While entered, the training hears what we are told. Where somebody ignores it, that stays; main thread only."""

    def told(number: int, frame: FrameType | None) -> None:
        # a handler may not wait, and what it interrupts may be asking the engine something itself
        threading.Thread(target=_pass_on, args=(run, signal.Signals(number).name), daemon=True).start()

    before = {number: signal.getsignal(number) for number in NUMBERS}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass_on(run: Run, name: str) -> None:
    time.sleep(TOLD_ALL_S)
    with contextlib.suppress(CockpitError, OSError):
        ask(run, "signal", name=name)

"""Leaves when told to by a signal or when the terminal is gone, also while the terminal takes nothing any more.

Textual handles none of these: SIGTERM and SIGHUP would leave the terminal broken, a terminal that is gone is read
for ever at a full core, and one that has stopped reading blocks the loop that would do the leaving. Used by
``show`` only; the training never hears of any of it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

PATIENCE_S = 3.0
"""So long the screen may take to leave by itself."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
RESTORED = (*SIGNALS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class HangUp:
    """While entered: calls ``leave`` (from any thread) on a signal or when stdin's terminal hangs up; where that does
    not help within a few seconds, gives the terminal its modes back and ends the process.

    Signal handlers are as before once it is left.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._done = threading.Event()
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="cockpit-hangup", daemon=True)
        self._handlers: dict[signal.Signals, Any] = {}
        self._modes: list[Any] | None = None

    def __enter__(self) -> HangUp:
        self._handlers = {number: signal.getsignal(number) for number in RESTORED}
        for number in SIGNALS:
            signal.signal(number, self._told)
        self._modes = termios.tcgetattr(sys.stdin.fileno())
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        os.write(self._wake[1], b".")
        self._thread.join(PATIENCE_S)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in self._wake:
            os.close(end)

    def _told(self, number: int, frame: FrameType | None) -> None:
        # in the main thread, even while that waits for the terminal: so somebody else must watch the clock
        self._leave()
        threading.Thread(target=self._or_else, args=(128 + number,), daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), 0)  # no events asked for: POLLHUP and POLLERR always come
        poll.register(self._wake[0], select.POLLIN)
        found = dict(poll.poll())
        if self._wake[0] in found or not found:
            return
        self._leave()
        self._or_else(128 + signal.SIGHUP)

    def _or_else(self, status: int) -> None:
        if self._done.wait(PATIENCE_S):
            return
        try:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._modes or [])
        except (termios.error, TypeError):
            pass  # nothing is left to give back
        finally:
            os._exit(status)

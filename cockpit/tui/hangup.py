"""Notices that the terminal is gone, from a thread of its own that sleeps in ``poll`` and costs nothing.

Textual would read an end-of-file for ever at a full core. Used by ``run_screen`` only; the training never hears of it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from types import TracebackType

PATIENCE_S = 3.0
EXIT_STATUS = 129
"""128 + SIGHUP: this process is only a client of the run, and has nobody left to show it to."""


class HangUp:
    """While entered: calls ``leave`` (from the thread) once stdin's terminal hangs up, and ends the process where
    that does not help within a few seconds."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._done = threading.Event()
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="cockpit-hangup", daemon=True)

    def __enter__(self) -> HangUp:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        os.write(self._wake[1], b".")
        self._thread.join(PATIENCE_S)
        for end in self._wake:
            os.close(end)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), 0)  # no events asked for: POLLHUP and POLLERR always come
        poll.register(self._wake[0], select.POLLIN)
        found = dict(poll.poll())
        if self._wake[0] in found or not found:
            return
        self._leave()
        if not self._done.wait(PATIENCE_S):
            os._exit(EXIT_STATUS)

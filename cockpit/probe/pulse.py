"""The probe's heartbeat: one daemon thread, five times a second, that does all JSON and socket work.

It starts at the end of the first step, is stopped and joined (bounded) before a fork and comes back when all workers
of an iterator have been forked, else at the end of the next step; a forked child starts over, silent until it trains
itself. It must never hold a lock that the training takes, never touch torch, and say nothing on stdout or stderr.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from typing import Callable

PERIOD_S = 0.2
JOIN_S = 0.5


_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class Pulse:
    """Runs ``beat`` in its thread, ``last`` at the end. ``wanted`` False: never again in this process."""

    def __init__(self, beat: Callable[[], None], last: Callable[[], None]) -> None:
        self._beat = beat
        self._last = last
        self._minds_end = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._work: Callable[[], object] | None = None
        self.first: Callable[[], object] | None = None
        """What is done once in each process, before the first beat."""
        self._began = False
        self._interrupted = False
        self.wanted = True

    @property
    def running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """At the end of a step; does nothing where it runs already."""
        if self._thread is None and self.wanted:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="cockpit", daemon=True)
            self._thread.start()
            self._interrupted = False
            self._mind_the_end()

    def resume(self) -> None:
        """Workers have been forked: goes on where it ran before. What hangs in the step to come can be seen then."""
        if self._interrupted:
            self.start()

    def _mind_the_end(self) -> None:
        """What multiprocessing forks ends without running what atexit knows; its own last calls it makes."""
        util = sys.modules.get("multiprocessing.util")
        if not self._minds_end and util is not None and multiprocessing.parent_process() is not None:
            self._minds_end = True
            util.Finalize(None, self._last, exitpriority=-100)

    def _run(self, stop: threading.Event) -> None:
        # at once: a training that is killed soon after its first step has still been seen
        began, self._began = self._began, True
        if self.first is not None and not began:
            self.first()
        self._beat()
        # signals are the script's: none is delivered to this thread, whatever the script blocks in its own
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        while not stop.wait(PERIOD_S):
            self._beat()
        if self._work is not None:
            self._work()

    def stop(self, join_s: float = JOIN_S) -> None:
        """Before a fork and at exit: asks the thread to end and waits for it, but never long."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._interrupted = True
            self._stop.set()
            thread.join(join_s)

    def finish(self, work: Callable[[], object], within_s: float) -> None:
        """At exit: what might never return (a file system that hangs) is done beside the script's thread, which waits
        for it so long and no longer."""
        if self._thread is not None and self._thread.is_alive():
            self._work = work
            self.stop(within_s)
            return
        thread = threading.Thread(target=work, name="cockpit", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # Python 3.12 and later start no thread at exit, where none of ours has run yet
            work()
            return
        thread.join(within_s)

    def forget(self) -> None:
        """In a forked child: the thread did not come along."""
        self._thread, self._minds_end, self._interrupted, self._began = None, False, False, False
        self._stop = threading.Event()

"""A training whose starter was stopped and is gone: it has its grace to save all the same. Called by ``engine``."""

from __future__ import annotations

import signal
from collections.abc import Callable

from cockpit.history.state import State

from . import processes
from .hear import Ears
from .rundir import RunDir

GOES_ON_S = 1.5
"""Whoever still makes steps so long after what started it was stopped does not know of the stop."""


class Alone:
    """``clock`` gives seconds since the epoch."""

    def __init__(self, run: RunDir, ears: Ears, clock: Callable[[], float]) -> None:
        self._run, self._ears, self._clock = run, ears, clock
        self._since_s: float | None = None

    def is_saving(self, state: State, told: set[int], stopped: set[int]) -> bool:
        """A shell that was stopped dies at once; whether the training that it ran still lives.

        ``told`` and ``stopped``: who has had a signal to end; whoever gets one here is added to ``told``.
        """
        inner = [pid for pid in self._ears.training_pids() if pid != state.pid and processes.is_alive(pid, None)]
        if state.phase != "stopping" or not inner:
            return False
        now_s = self._clock()
        self._since_s = now_s if self._since_s is None else self._since_s
        # who was told has not told the training that it had started: that is told too, once
        for pid in self._ears.stepping(self._since_s + GOES_ON_S):
            if pid not in told | stopped:
                told.add(pid)
                processes.send(self._run, pid, signal.SIGTERM)
        return True

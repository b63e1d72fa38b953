"""A clock that no jump of the machine's moves, and the end of a stop's grace by it. Used by the engine.

What is done to a training must not hang on the time of day: a machine whose clock is set, or that slept, would cut a
save short. What people and journals are told stays in the machine's own time.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Steady:
    """``clock`` is the machine's, in seconds since the epoch; ``ticks`` only ever go on, and not while it sleeps."""

    def __init__(self, clock: Callable[[], float], ticks: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticks = ticks
        self._until: tuple[float | None, float | None] = (None, None)

    def now_s(self) -> float:
        """Seconds since some moment."""
        return self._ticks()

    def of(self, until_s: float | None) -> float | None:
        """A moment told in the machine's time, by this clock; worked out once, when it is first told."""
        if until_s is None:
            return None
        if self._until[0] != until_s:
            self._until = (until_s, self._ticks() + until_s - self._clock())
        return self._until[1]

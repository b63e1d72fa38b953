"""When a hand-off is written without being asked for: at the end of every so many epochs, and never for too much time.

Held by ``live``. Nobody who asked only for tries after a crash (``--on-crash``) has asked to pay for them: then one is
left out where the last took more than ``HANDOFF_SHARE`` of the time since. Who names a number gets what he asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.crash import HANDOFF_SHARE


class Pace:
    """Of one process. ``every``: so many epochs, 0 for never. Times in nanoseconds."""

    def __init__(self) -> None:
        self.every = 0
        self.sparing = False
        self.restart()

    def restart(self) -> None:
        """Nothing written so far, so nobody knows how long one takes: the first that is due is written."""
        self._took = self._since = 0
        self.spares = False
        """Whether one that was due has been left out since the newest."""

    def start(self, told: Mapping[str, Any]) -> None:
        """What start.json says."""
        self.every, self.sparing = count(told.get("handoff_every")), told.get("handoff_sparing") is True

    def is_due(self, done: int) -> bool:
        """Whether the end of epoch ``done`` is one of those."""
        return bool(self.every) and done % self.every == 0

    def is_too_soon(self, now: int) -> bool:
        """Whether one now would take more than its share."""
        return self.sparing and self._took > HANDOFF_SHARE * (now - self._since)

    def tried(self, took: int, now: int) -> None:
        """One was written or could not be, which takes its time as well."""
        self._took, self._since, self.spares = took, now, False


def count(value: Any) -> int:
    """A number of epochs; 0 where it is none."""
    return value if isinstance(value, int) and value > 0 else 0

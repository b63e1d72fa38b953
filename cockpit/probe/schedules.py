"""Learning-rate schedules that the script has made, so far as they forbid more steps than they were made for.

Told by a hook round ``LRScheduler.__init__``; asked before a batch size is changed. It only remembers them, weakly.
"""

from __future__ import annotations

import weakref
from typing import Any


class Schedules:
    """``made`` when one is made; it is looked at no further until somebody asks."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []

    def made(self, schedule: Any, *_: Any) -> None:
        self._made = [ref for ref in self._made if ref() is not None]
        self._made.append(weakref.ref(schedule))

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        """Nothing to leave."""

    def are_any(self) -> bool:
        """Whether one of them is still there."""
        return any(ref() is not None for ref in list(self._made))

    def ends_after(self, steps: int) -> str | None:
        """A live schedule that goes with the ``steps`` of the training and raises after its last one, in words."""
        for ref in list(self._made):
            schedule = ref()
            known = getattr(schedule, "__dict__", {})
            total, done = known.get("total_steps"), known.get("last_epoch")
            # one that is stepped once an epoch has made far fewer steps than the training
            if isinstance(total, int) and isinstance(done, int) and steps and done * 2 >= steps:
                return "%s ends after step %d and would raise" % (type(schedule).__name__, total)
        return None

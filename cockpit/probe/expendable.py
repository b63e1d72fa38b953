"""A process that only waits for its turn offers itself to the kernel, should memory run out: never the training.

Called by ``warm``. The script begins with the standing that it would have without this, or not at all.
"""

from __future__ import annotations

from typing import Callable

PLACE = "/proc/self/oom_score_adj"
FIRST = 1000


def offer(place: str = PLACE) -> Callable[[], None]:
    """From now on this process goes first; returns what takes that back. Raises OSError where it could not be."""
    try:
        with open(place) as file:
            began = int(file.read())
        _put(place, FIRST)
    except (OSError, ValueError):
        return lambda: None  # no such thing here
    _put(place, began)  # whoever may not go back to where it was must not begin
    _put(place, FIRST)
    return lambda: _put(place, began)


def _put(place: str, value: int) -> None:
    with open(place, "w") as file:
        file.write(str(value))

"""What has happened so far: the state, its journal, and whoever wants to hear of the next event. One for each engine.

Every event of a run passes through ``happen``, which is the only place that changes the state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from cockpit.history.fold import fold
from cockpit.history.journal import Journal
from cockpit.history.state import State
from cockpit.model.events import Event

T = TypeVar("T")
DIGITS = 6
CLOCK_DIGITS = 3


class Record:
    """``state`` is always what folding the journal gives. ``listen`` is called with each event, after it counts."""

    def __init__(self, state: State, journal: Journal) -> None:
        self.state = state
        self.journal = journal
        self.listeners: list[Callable[[Event], None]] = []

    def happen(self, event: Event) -> None:
        """Round, fold, write down, pass on."""
        event = rounded(event)
        self.state = fold(self.state, event)
        self.journal.append(event, self.state)
        for listen in self.listeners:
            listen(event)


def rounded(value: T, digits: int = DIGITS) -> T:
    """Floats of an event (or of what it holds) to microseconds, clock times and CPU figures to thousandths.

    Done once, before anything sees the event, so that the journal is short and still tells exactly the live state.
    """
    if isinstance(value, float):
        return round(value, digits)  # type: ignore[return-value]
    if isinstance(value, (tuple, list)):
        return tuple(rounded(item, digits) for item in value)  # type: ignore[return-value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name)
            if isinstance(old, (float, tuple, list)) or dataclasses.is_dataclass(old):
                changed[field.name] = rounded(old, CLOCK_DIGITS if _is_coarse(field.name) else DIGITS)
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _is_coarse(name: str) -> bool:
    return name in ("at_s", "until_s", "cores_busy") or name.startswith("cpu_")

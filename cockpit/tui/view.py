"""All that one picture is drawn from, as one frozen value: the run's state, the time, and what the person does.

Made by the app at each tick and key; handed to ``frame``. Nothing drawn may come from anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cockpit.model.knobs import Value
from cockpit.session.knobs import KnobRow, knob_rows
from cockpit.session.state import State

from .glyphs import BRAILLE, Glyphs

SPANS_S = (1.0, 5.0, 30.0)
"""Seconds of one chart column, chosen with ``z``."""


@dataclass(frozen=True)
class View:
    """``link_lost_s``: since when the engine does not answer (None: it does). ``wanted``: values chosen with a key
    whose answer is still under way. ``column_s``: seconds a chart column. ``lines``: newest output, oldest first.
    ``notice``: a sentence that was just said."""

    state: State | None
    now_s: float
    cursor: int = 0
    wanted: Mapping[str, Value] = field(default_factory=dict)
    link_lost_s: float | None = None
    glyphs: Glyphs = BRAILLE
    mono: bool = False
    readonly: bool = False
    column_s: float = SPANS_S[0]
    lines: tuple[str, ...] = ()
    notice: str = ""

    @property
    def known(self) -> State:
        """The state, or an empty one before the first."""
        return self.state or State()

    @cached_property
    def knobs(self) -> tuple[KnobRow, ...]:
        """One row a knob."""
        return knob_rows(self.known)

    def next_of(self, knob: KnobRow) -> Value | None:
        """What the knob is about to become: as just chosen, else as queued; None: it stays as it is."""
        return self.wanted.get(knob.name, knob.next)

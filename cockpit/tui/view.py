"""All that one picture is drawn from, as one frozen value: the run's state, the time, and what the person does.

Made by the app at each tick and key; handed to ``frame``. Nothing drawn may come from anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cockpit.history.knobs import KnobRow, knob_rows
from cockpit.history.state import State
from cockpit.model.knobs import Value

from .draft import Draft
from .glyphs import BRAILLE, Glyphs
from .reading import AT_REST, Reading

SPANS_S = (1.0, 5.0, 30.0)
"""Seconds of one chart column, chosen with ``z``."""


@dataclass(frozen=True)
class View:
    """``chosen``: the knob under the cursor (empty: the first). ``link_lost_s``: since when the engine does not answer
    (None: it does). ``wanted``: values chosen with a key whose answer is still under way. ``column_s``: seconds a chart
    column. ``lines``: newest output, oldest first; the first is line ``first_line``, ``older``: there are some before.
    ``reading``: how the output is read. ``tried``: the trials have the whole screen, from this row on (None: they do
    not). ``notice``: a sentence that was just said. ``restart``: the view of hot restarts is open, with what is chosen
    in it."""

    state: State | None
    now_s: float
    chosen: str = ""
    wanted: Mapping[str, Value] = field(default_factory=dict)
    link_lost_s: float | None = None
    glyphs: Glyphs = BRAILLE
    mono: bool = False
    readonly: bool = False
    column_s: float = SPANS_S[0]
    lines: tuple[str, ...] = ()
    notice: str = ""
    first_line: int = 0
    older: bool = False
    reading: Reading = AT_REST
    tried: int | None = None
    restart: Draft | None = None

    @property
    def known(self) -> State:
        """The state, or an empty one before the first."""
        return self.state or State()

    @cached_property
    def knobs(self) -> tuple[KnobRow, ...]:
        """One row a knob: what can be changed first, what cannot at the end, each in the table's order."""
        return tuple(sorted(knob_rows(self.known), key=lambda knob: not knob.can))

    @property
    def page(self) -> bool:
        """Whether something else than the picture has the whole screen."""
        return self.reading.open or self.tried is not None or self.restart is not None

    @property
    def cursor(self) -> int:
        """Where the chosen knob stands among them."""
        return next((at for at, knob in enumerate(self.knobs) if knob.name == self.chosen), 0)

    @cached_property
    def scripts(self) -> Mapping[str, Value | None]:
        """What the script itself has, by knob: what ``script`` means as a value."""
        return {knob.name: knob.script for knob in self.knobs}

    def next_of(self, knob: KnobRow) -> Value | None:
        """What the knob is about to become: as just chosen, else as queued; None: it stays as it is."""
        return self.wanted.get(knob.name, knob.next)

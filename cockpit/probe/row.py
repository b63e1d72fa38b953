"""What is told of one knob, of one loader or of the whole training.

Made wherever a knob is looked at. It has the fields of ``model.events.KnobReport``, which what trains does not import:
with it would come all other events.
"""

from __future__ import annotations

from typing import NamedTuple

from ..model.knobs import Value


class Row(NamedTuple):
    """``script`` is what the script asked for, ``in_force`` what is true now; ``asked`` waits for its moment."""

    name: str
    script: Value | None
    in_force: Value | None
    can: bool = True
    can_now: bool = True
    reason: str | None = None
    note: str | None = None
    asked: Value | None = None

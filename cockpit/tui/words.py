"""Changes and knobs in words, as the panels, the trials and the axis write them. Pure."""

from __future__ import annotations

from cockpit.model.knobs import BY_NAME, SCRIPT, Value, show_value
from cockpit.session.state import Entry

from .glyphs import Glyphs


def label_of(name: str) -> str:
    """A knob's short name; its own where it is not known."""
    knob = BY_NAME.get(name)
    return knob.label if knob else name


def value_words(value: Value | None) -> str:
    """A value for a narrow column."""
    return "script" if value == SCRIPT else show_value(value)


def knobs_of(entry: Entry, glyphs: Glyphs) -> str:
    """``num_workers 0→4, prefetch 2→4``; a switch only says where it went; asked values until one is in force."""
    parts = []
    for name, value in entry.asked.items():
        old, new = (entry.change or {}).get(name, (None, value))
        if old is not None and new is not None and not isinstance(new, bool):
            parts.append(f"{label_of(name)} {value_words(old)}{glyphs.arrow}{value_words(new)}")
        else:
            parts.append(f"{label_of(name)} {value_words(value if new is None else new)}")
    back = "undo: " if entry.origin == "undo" else "redo: " if entry.origin == "redo" else ""
    return back + ", ".join(parts)

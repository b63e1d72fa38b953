"""Changes and knobs in words, as the panels, the trials and the axis write them. Pure."""

from __future__ import annotations

from cockpit.history.state import Entry
from cockpit.model.knobs import BY_NAME, ENV, SCRIPT, Value, show_value

from .view import View


def label_of(name: str) -> str:
    """A knob's short name; its own where it is not known."""
    knob = BY_NAME.get(name)
    return knob.label if knob else name.removeprefix(ENV)


def value_words(value: Value | None, script: Value | None = None) -> str:
    """A value for a narrow column; ``script``: what the script itself has, where that is known."""
    if value == SCRIPT:
        return "script" if script is None or script == SCRIPT else show_value(script)
    return show_value(value)


def values_of(entry: Entry, view: View) -> str:
    """The same without the names, for where there is no room for them: ``0→4, 2→4``."""
    return ", ".join(_value_of(entry, name, value, view) for name, value in entry.asked.items())


def knobs_of(entry: Entry, view: View) -> str:
    """``num_workers 0→4, prefetch 2→4``; a switch only says where it went; asked values until one is in force."""
    parts = [f"{label_of(name)} {_value_of(entry, name, value, view)}" for name, value in entry.asked.items()]
    back = "undo: " if entry.origin == "undo" else "redo: " if entry.origin == "redo" else ""
    return back + ", ".join(parts)


def _value_of(entry: Entry, name: str, value: Value, view: View) -> str:
    old, new = (entry.change or {}).get(name, (None, value))
    script = view.scripts.get(name)
    into = value_words(value if new is None else new, script)
    moved = old is not None and new is not None and not isinstance(new, bool)
    return f"{value_words(old, script)}{view.glyphs.arrow}{into}" if moved else into

"""Everything about one setting in a box: what it does, what it is and was, whether and when it can be changed. Pure.

Opened with ``enter``; drawn by ``boxes``. Here reasons and notes stand in full, which on their row may be cut short.
"""

from __future__ import annotations

from cockpit.history.knobs import KnobRow
from cockpit.model.knobs import BY_NAME, takes

from .clean import clean
from .dialogs import WIDE, box, keys
from .footer import wrapped
from .machine import compile_words
from .rows import Row, Run
from .settings import landing_words
from .view import View
from .words import value_words

LABEL = 13


def about_rows(view: View, width: int, height: int, top: int) -> list[Row]:
    """The box for the chosen setting in at most ``height`` rows; ``top``: the first line shown where it scrolls."""
    if not view.knobs:
        return box("settings", [[("none is known yet", "dim")]], keys(("esc", "close")), min(WIDE, width), view.glyphs)
    knob = view.knobs[view.cursor]
    size = min(WIDE, width)
    body = _lines(view, knob, max(1, size - 4))
    room = max(1, height - 4)
    shown = body[min(top, max(0, len(body) - room)) :][:room]
    more = (("↑↓", "scroll"),) if len(body) > room else ()
    return box(knob.name, shown, keys(("esc", "close"), *more), size, view.glyphs)[:height]


def _lines(view: View, knob: KnobRow, width: int) -> list[list[Run]]:
    lines: list[list[Run]] = [[(piece, "text")] for piece in wrapped(BY_NAME[knob.name].help, width)]
    lines.append([])
    for name, words, style in _facts(view, knob):
        for at, piece in enumerate(wrapped(words, max(1, width - LABEL))):
            lines.append([((name if at == 0 else "").ljust(LABEL), "dim"), (piece, style)])
    return lines


def _facts(view: View, knob: KnobRow) -> list[tuple[str, str, str]]:
    """Name, words and style of everything to be told; without words there is nothing to tell."""
    following = view.next_of(knob)
    queued = "" if following is None else value_words(following, knob.script)
    asked = "" if knob.asked is None or queued else f"{value_words(knob.asked, knob.script)}, {_state(knob)}"
    return [
        ("running", "mixed" if knob.mixed else value_words(knob.in_force, knob.script), "bold text"),
        ("script", value_words(knob.script), "text"),
        ("queued", queued, "bold worse"),
        ("lands", landing_words(view.known) if queued and view.state else "", "text"),
        ("asked", asked, "text"),
        ("compiled", compile_words(view.known).removeprefix("compiled ") if knob.name == "compile" else "", "text"),
        ("takes", takes(BY_NAME[knob.name]), "dim"),
        ("changes", _when(knob), "dim"),
        ("why", clean(knob.reason or ""), "text" if knob.can else "worse"),
        ("note", clean(knob.note or ""), "text"),
        ("from a shell", f"cockpit set {knob.name}=VALUE{' --now' if knob.can_now else ''}" if knob.can else "", "dim"),
    ]


def _state(knob: KnobRow) -> str:
    return "in force" if knob.state in ("kept", "settling", "untouched", "ended") else knob.state.replace("_", " ")


def _when(knob: KnobRow) -> str:
    if not knob.can:
        return "not here"
    return "at the next epoch, or now with a" if knob.can_now else "at the next epoch only"

"""Every trial on the whole screen: what the table of trials says, and below each line what it has no room for. Pure.

Called by the frame when ``v`` has opened it. Changes and reasons stand in full here, and what a figure rests on.
"""

from __future__ import annotations

from cockpit.history.state import Entry
from cockpit.model.counts import counted

from .clean import clean
from .footer import wrapped
from .format import count, rate, seconds
from .rows import BLANK, Row, row, text_of
from .trials import TROUBLE, trials_rows
from .view import View
from .words import knobs_of

INDENT = 4
ORIGINS = {"schedule": "as scheduled", "undo": "taking a change back", "redo": "once more"}


def tried_rows(view: View, height: int, width: int) -> list[Row]:
    """``height`` rows from the ``view.tried``-th on; a heading stays."""
    lines = lines_of(view, width)
    first = max(0, min(view.tried or 0, len(lines) - (height - 1)))
    shown = lines[first : first + max(0, height - 1)]
    heading = trials_rows(view, width, 1)
    return [*heading, *shown, *([BLANK] * (height - len(heading) - len(shown)))][: max(0, height)]


def lines_of(view: View, width: int) -> list[Row]:
    """All lines below the heading: each trial, newest first, with what there is to say of it; the baseline last."""
    ledger = view.known.ledger[::-1]
    found = trials_rows(view, width, len(ledger) + 2)[1:]
    lines: list[Row] = []
    for line, entry in zip(found, ledger, strict=False):
        lines.append(line)
        style = "text" if entry.state in TROUBLE else "dim"
        for said, look in ((knobs_of(entry, view), "text"), (clean(entry.reason or ""), style)):
            told = wrapped(said, max(8, width - INDENT - 1)) if said not in text_of([line]) else []
            lines += [row((" " * INDENT, "text"), (piece, look)) for piece in told]
        lines += [
            row((" " * INDENT, "text"), (piece, "dim"))
            for piece in wrapped(rests_on(entry, view), max(8, width - INDENT - 1))
        ]
    return [*lines, *found[len(ledger) :]]


def rests_on(entry: Entry, view: View) -> str:
    """When and where it landed, what it took, and on how much its figure rests."""
    parts = [
        "" if entry.at_step is None else f"at step {count(entry.at_step)}",
        f"of {clean(entry.loader)} alone" if entry.loader else "",
        ORIGINS.get(entry.origin, ""),
        "" if entry.stall_ms is None else f"stood still for {entry.stall_ms:.0f} ms",
        "" if not entry.compiled_s else f"compiled for {seconds(entry.compiled_s)}",
        _windows(entry, view),
        *(f"but {flag.words}" for flag in entry.flags),
        f"said before: {clean(entry.note)}" if entry.note else "",
    ]
    return ", ".join(part for part in parts if part)


def _windows(entry: Entry, view: View) -> str:
    before, after = entry.before_samples_per_s, entry.after_samples_per_s
    if before is None or after is None:
        return ""
    rates = f"{rate(before)}{view.glyphs.arrow}{rate(after)}"
    return f"{rates} over {entry.before_windows} and {counted(entry.after_windows, 'window')}"

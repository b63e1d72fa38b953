"""What was tried and what it gave: the ledger, newest first, the baseline last. Pure drawing, called by the frame.

Figures keep their columns; what gives way is the words. Where there is room, the interval and a bar of the gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cockpit.analysis.compare import NOT_COMPARABLE
from cockpit.analysis.policy import POLICY
from cockpit.history.state import Entry
from cockpit.history.trials import is_idle, uncounted

from .clean import clean
from .format import delta, interval, rate
from .head import mark_of
from .now import noise_of
from .rows import Row, Run, cells, cut, fit, row, spread, width_of
from .view import View
from .words import knobs_of

NUMBER, RATE, GAIN, INTERVAL = 4, 9, 11, 17
NARROW, WIDE, WIDEST = 36, 62, 80
NAME_LEAST = 6
TROUBLE = ("refused", "rolled_back", "ended")


@dataclass(frozen=True)
class Columns:
    """Widths of a line's columns at some width of the panel; 0: there is no room for it."""

    number: int
    rate: int
    gain: int
    interval: int
    bar: int


def columns_for(width: int) -> Columns:
    """The columns that fit into ``width``."""
    if width < NARROW:
        return Columns(0, 0, GAIN - 2, 0, 0)
    return Columns(NUMBER, RATE, GAIN, INTERVAL if width >= WIDE else 0, min(24, width - 60) if width >= WIDEST else 0)


def trials_rows(view: View, width: int, height: int) -> list[Row]:
    """A header and at most ``height - 1`` lines; the baseline always keeps its place at the end."""
    if width <= 0 or height <= 0:
        return []
    state, has = view.known, columns_for(width)
    head: list[Run] = [
        ("samples/s".rjust(has.rate) if has.rate else "", "dim"),
        ("  vs before".ljust(has.gain)[: has.gain], "dim"),
        (" 95% interval".ljust(has.interval)[: has.interval] + " " * has.bar, "dim"),
    ]
    noise = noise_of(state)
    floor = f"  noise ±{100.0 * noise:.1f}%" if noise is not None and has.rate else ""
    if len("TRIALS") + cells(floor) >= width - width_of(head):
        floor = ""
    rows = [spread([("TRIALS", "bold text"), (floor, "faint")], head, width)]
    entries = list(enumerate(state.ledger, start=1))[::-1][: max(0, height - 2)]
    most = max((_size(entry) for _, entry in entries), default=0.0)
    rows += [_line(view, number, entry, width, has, most) for number, entry in entries]
    if height >= 2:
        rows.append(_baseline(view, width, has))
    return rows


def _baseline(view: View, width: int, has: Columns) -> Row:
    base = view.known.baseline
    words = "baseline" + (", chosen" if base and base.by_person else "")
    figure = rate(base.samples_per_s if base else None, has.rate or has.gain)
    rest = " " * (has.interval + has.bar + (has.gain if has.rate else 0))
    return spread([_number(0, has), (words, "dim")], [(figure, "text"), (rest, "text")], width)


def _number(number: int, has: Columns) -> Run:
    return (f"{number:>{has.number - 1}} " if has.number else "", "faint")


def _line(view: View, number: int, entry: Entry, width: int, has: Columns, most: float) -> Row:
    words, first = knobs_of(entry, view), _number(number, has)
    if entry.state in TROUBLE:
        reason = entry.state.replace("_", " ") + (f": {clean(entry.reason)}" if entry.reason else "")
        room = max(0, width - has.number - 1 - min(cells(words), width // 2))
        return fit([first, (cut(words, width // 2), "dim"), (" ", "dim"), (cut(reason, room), "alarm")], width)
    tail: list[Run] = [(rate(entry.after_samples_per_s, has.rate), "text")] if has.rate else []
    tail += _outcome(view, entry, has.gain)
    shown = interval(entry.interval_pct) if entry.verdict != NOT_COMPARABLE else ""
    tail.append((f" {shown}".ljust(has.interval)[: has.interval], "dim"))
    if has.bar:
        size = round((has.bar - 1) * _size(entry) / most) if most > 0.0 else 0
        tail.append((" " + (view.glyphs.bar * size).ljust(has.bar - 1), mark_of(entry, view)[1]))
    left = max(0, width - has.number - sum(cells(text) for text, _ in tail))
    style = "dim" if entry.state == "reverted" else "text"
    return fit(row(first, (_shortened(words, left).ljust(left), style), *tail), width)


def _shortened(words: str, width: int) -> str:
    """Too long a name is cut, and never the value behind it; of several settings the last ones are."""
    name, space, value = words.rpartition(" ")
    room = width - cells(value) - 1
    one = space and ", " not in words and cells(words) > width and room >= NAME_LEAST
    return f"{cut(name, room)} {value}" if one else cut(words, width)


def _size(entry: Entry) -> float:
    """How long the bar of a change is, in percent of its before."""
    return abs(entry.delta_pct) if entry.delta_pct is not None and math.isfinite(entry.delta_pct) else 0.0


def _outcome(view: View, entry: Entry, width: int) -> list[Run]:
    """The gain in its fixed place, or the word that stands for it."""
    lead = "  " if width >= GAIN else " "
    if entry.state in ("queued", "applying"):
        return [(f"{lead}{entry.state}".ljust(width), "worse")]
    if entry.verdict == "settling":
        return [(f"{lead}{entry.settled_steps}/{entry.settle_steps}".ljust(width)[:width], "dim")]
    if entry.verdict == NOT_COMPARABLE or entry.delta_pct is None:
        if is_idle(entry):
            return [(f"{lead}no effect".ljust(width)[:width], "dim")]
        if uncounted(entry):
            return [(f"{lead}no count".ljust(width)[:width], "dim")]
        before, least = entry.before_windows, POLICY.windows_before
        found = f"({before}/{least})" if before < least else "short"
        return [(f"{lead}– {found}".ljust(width), "dim")]
    mark, style = mark_of(entry, view)
    return [(f"{lead}{mark}{delta(entry.delta_pct, width - len(lead) - 1)}", f"bold {style}")]

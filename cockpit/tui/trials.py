"""What was tried and what it gave: the ledger, newest first, the baseline last. Pure drawing, called by the frame."""

from __future__ import annotations

from cockpit.analysis.compare import NOT_COMPARABLE
from cockpit.analysis.policy import POLICY
from cockpit.session.state import Entry

from .clean import clean
from .format import delta, interval, rate
from .glyphs import spelled
from .head import mark_of
from .rows import Row, Run, cells, cut, fit, row, spread
from .view import View
from .words import knobs_of

NUMBER, RATE, GAIN, INTERVAL = 4, 9, 11, 16


def trials_rows(view: View, width: int, height: int) -> list[Row]:
    """A header and at most ``height - 1`` lines; the baseline always keeps its place at the end."""
    state, wide = view.known, width >= 62
    head_right: list[Run] = [("samples/s".rjust(RATE), "dim"), ("  vs before".ljust(GAIN), "dim")]
    head_right += [(" 95% interval".ljust(INTERVAL), "dim")] if wide else []
    rows = [spread([("TRIALS", "bold text")], head_right, width)]
    room = height - 2
    entries = list(enumerate(state.ledger, start=1))[::-1][: max(0, room)]
    rows += [_line(view, number, entry, width, wide) for number, entry in entries]
    if height >= 2:
        base = state.baseline
        words = "baseline" + (" (chosen)" if base and base.by_person else "")
        tail: list[Run] = [(rate(base.samples_per_s if base else None, RATE), "text"), (" " * GAIN, "text")]
        tail += [(" " * INTERVAL, "text")] if wide else []
        rows.append(spread([("0".rjust(NUMBER - 1) + " ", "faint"), (words, "dim")], tail, width))
    return rows[:height]


def _line(view: View, number: int, entry: Entry, width: int, wide: bool) -> Row:
    words = knobs_of(entry, view.glyphs)
    first: Run = (f"{number:>{NUMBER - 1}} ", "faint")
    if entry.state in ("refused", "rolled_back"):
        reason = entry.state.replace("_", " ") + (f": {clean(entry.reason)}" if entry.reason else "")
        room = max(0, width - NUMBER - cells(words) - 1)
        told = spelled(cut(reason, room), view.glyphs)
        return fit([first, (words, "dim"), (" ", "dim"), (told, "alarm")], width)
    tail = [(rate(entry.after_samples_per_s, RATE), "text"), *_outcome(entry, view)]
    if wide:
        shown = interval(entry.interval_pct) if entry.verdict != NOT_COMPARABLE else ""
        tail.append((f" {shown}".ljust(INTERVAL), "dim"))
    left = width - NUMBER - sum(cells(text) for text, _ in tail)
    style = "dim" if entry.state == "reverted" else "text"
    return fit(row(first, (cut(words, max(0, left)).ljust(max(0, left)), style), *tail), width)


def _outcome(entry: Entry, view: View) -> list[Run]:
    """The gain in its fixed place, or the word that stands for it."""
    if entry.state in ("queued", "applying"):
        return [(f"  {entry.state}".ljust(GAIN), "worse")]
    if entry.verdict == "settling":
        return [(f"  {entry.settled_steps}/{entry.settle_steps}".ljust(GAIN), "dim")]
    if entry.verdict == NOT_COMPARABLE or entry.delta_pct is None:
        return [(f"  – ({entry.before_windows}/{POLICY.windows_before})".ljust(GAIN), "dim")]
    mark, style = mark_of(entry, view)
    return [(f"  {mark}{delta(entry.delta_pct, GAIN - 3)}", f"bold {style}")]

"""The training's own output: a few newest lines under the picture, or the whole screen's worth of it. Pure.

Called by the frame. Whatever was printed is data: cleaned, cut at the width, and what is looked for is marked in it.
"""

from __future__ import annotations

from cockpit.history.actions import BY_NAME
from cockpit.model.counts import noun

from .clean import clean
from .format import count
from .reading import Reading, places
from .rows import BLANK, Row, Run, cells, clip, cut, fit, row, spread
from .view import View

RESTART = ("up", "less", "about", "restart", "undo", "close")
FOOTER, OTHERS = ("up", "output", "follow", "find", "next", "close"), ("up", "output", "find", "close")
"""Actions named at the bottom while the output, or another page, has the whole screen."""


def log_rows(view: View, height: int, width: int) -> list[Row]:
    """The training's own newest output, newest at the bottom."""
    if height <= 0:
        return []
    said = [text for line in view.lines[-height:] if (text := clean(line)).strip()]
    if not said and view.known.output is not None:
        said = [clean(view.known.output.line)]
    lines = [row((f"{view.glyphs.said} ", "faint"), (cut(line, max(0, width - 2)), "dim")) for line in said]
    return [*([BLANK] * (height - len(lines))), *lines]


def output_rows(view: View, height: int, width: int) -> list[Row]:
    """A heading that says which lines these are and what was found, and as many lines as there is room for."""
    if height <= 0:
        return []
    reading, lines = view.reading, view.lines
    shown = max(0, height - 1)
    last = max(0, len(lines) - shown)
    start = last if reading.top is None else max(0, min(reading.top - view.first_line, last))
    part = lines[start : start + shown]
    body = [_line(view, view.first_line + start + at, line, width) for at, line in enumerate(part)]
    if not lines:
        body = [row((" nothing printed yet", "faint"))]
    return [_heading(view, start, len(part), width), *body, *([BLANK] * (shown - len(body)))]


def _heading(view: View, start: int, shown: int, width: int) -> Row:
    reading, total = view.reading, len(view.lines)
    below = total - start - shown
    of = f"the newest {count(total)}" if view.older else count(total)
    where = f"lines {count(start + 1)}-{count(start + shown)} of {of}" if shown else ""
    state: Run = ("  following", "better")
    if reading.top is not None:
        state = (f"  {count(below)} more below", "worse") if below else ("  not following", "dim")
    left: list[Run] = [(" OUTPUT", "bold text"), (f"  {where}", "dim"), state]
    if reading.shift:
        left.append((f"  from column {reading.shift + 1}", "dim"))
    return spread(left, _found(view), width)


def _found(view: View) -> list[Run]:
    reading = view.reading
    if not reading.pattern:
        return []
    hits = len(reading.hits)
    place = f"{reading.hits.index(reading.hit) + 1} of " if reading.hit in reading.hits else ""
    told = f"{place}{count(hits)} {noun(hits, 'line')}" if hits else "in none of these lines"
    return [
        ("  find ", "dim"),
        (cut(clean(reading.pattern), 24), "bold text"),
        (f"  {told} ", "dim" if hits else "worse"),
    ]


def _line(view: View, number: int, line: str, width: int) -> Row:
    reading = view.reading
    chosen = number == reading.hit and bool(reading.pattern)
    ground = " on-cursor" if chosen else ""
    # what cannot be seen need not be drawn, however long the line is
    text = clean(line)
    seen = text[: reading.shift + width + len(reading.pattern)]
    mark: Run = (f"{view.glyphs.cursor if chosen else ' '} ", "bold key" + ground)
    runs = [mark, *_cut_left(_marked(seen, reading, ground), reading.shift)]
    more: list[Run] = [("…", "faint" + ground)] if sum(cells(text) for text, _ in runs) > width else []
    return fit([*clip(runs, width - len(more)), *more], width, "text" + ground)


def _marked(text: str, reading: Reading, ground: str) -> list[Run]:
    """The line with every place that was looked for standing out."""
    if not reading.pattern:
        return [(text, "text" + ground)]
    runs: list[Run] = []
    at = 0
    for start in places(text, reading.pattern):
        end = start + len(reading.pattern)
        runs += [(text[at:start], "text" + ground), (text[start:end], "bold reverse ink on-worse")]
        at = end
    return [*runs, (text[at:], "text" + ground)]


def _cut_left(runs: list[Run], columns: int) -> list[Run]:
    """What is left of the row without its first columns."""
    left: list[Run] = []
    for text, style in runs:
        while text and columns > 0:
            columns -= cells(text[0])
            text = text[1:]
        left.append((text, style))
    return left


def footer_words(view: View) -> list[tuple[str, str]]:
    """The keys of this page, as the footer shows them."""
    words = {"up": "↑↓", "next": "n N", "less": "←→"}
    short = {
        "up": "scroll" if view.restart is None else "choose",
        "follow": "follow",
        "find": "find",
        "next": "next, previous",
        "close": "back",
    }
    short["output"] = "the picture" if view.reading.open else "the output"
    short |= {"less": "value", "about": "type a value", "restart": "restart", "undo": "drop"}
    shown = FOOTER if view.reading.open else OTHERS if view.restart is None else RESTART
    return [(words.get(name, BY_NAME[name].shown), short[name]) for name in shown]

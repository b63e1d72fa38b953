"""Charts as pure drawing: numbers 0..1 into rows of braille, block or ASCII cells, upwards or hanging down.

Called by the frame; knows nothing of runs or time. A style belongs to a whole row, never to a cell: one segment a
row is what keeps a repaint cheap. None is a gap; a measured value above zero always shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .glyphs import Glyphs
from .rows import Row, Run, cells, cut, fit, row


@dataclass(frozen=True)
class Mark:
    """A change on the axis: its cell, its words, the style of both, and fewer words for where there is less room."""

    at: int
    words: str
    style: str
    short: str = ""


def area(values: Sequence[float | None], height: int, glyphs: Glyphs, down: bool = False) -> list[str]:
    """Filled area of ``height`` rows, top row first; ``values`` 0..1, ``glyphs.columns`` of them to a cell."""
    levels = glyphs.levels_down if down else glyphs.levels
    table, base = (glyphs.down, levels + 1) if down else (glyphs.up, levels + 1)
    most = levels * height
    tall = [_level(value, most) for value in values]
    lines = []
    for from_axis in range(height):
        floor = from_axis * levels
        if glyphs.columns == 2:
            left, right = tall[0::2], tall[1::2]
            line = "".join(
                table[_within(a - floor, levels) * base + _within(b - floor, levels)]
                for a, b in zip(left, right, strict=True)
            )
        else:
            line = "".join(table[_within(a - floor, levels)] for a in tall)
        lines.append(line)
    return lines if down else lines[::-1]


def round_up(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 5, 7.5, 10 × a power of ten: a scale that does not move with every sample."""
    if not (value > 0.0 and math.isfinite(value)):
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5) if value <= step * power), 10.0 * power)


def _level(value: float | None, most: int) -> int:
    if value is None or not value > 0.0:
        return 0
    return most if value >= 1.0 else max(1, round(value * most))


def _within(level: int, most: int) -> int:
    return 0 if level < 0 else most if level > most else level


def with_marks(line: str, style: str, marks: Sequence[Mark], glyphs: Glyphs) -> list[Run]:
    """The row in its one style, broken only where a change's line crosses empty cells."""
    runs: list[Run] = []
    done = 0
    for mark in marks:
        if mark.at < done or mark.at >= len(line) or line[mark.at] != " ":
            continue
        runs += [(line[done : mark.at], style), (glyphs.drop, mark.style)]
        done = mark.at + 1
    return [*runs, (line[done:], style)]


def axis_row(measured: Sequence[bool], marks: Sequence[Mark], glyphs: Glyphs) -> Row:
    """The time axis: a line where something was measured, broken where not, with the changes written on it.

    Words of a later change may cut those of an earlier one, never the other way round.
    """
    width = len(measured)
    plain = "".join(glyphs.line if seen else glyphs.gap for seen in measured)
    runs: list[Run] = []
    done = 0
    for at, mark in enumerate(marks):
        if mark.at < done or mark.at >= width:
            continue
        until = min([width, *(other.at for other in marks[at + 1 :] if other.at > mark.at)])
        room = until - mark.at - 1
        words = next((words for words in (mark.words, mark.short) if words and cells(words) < room), "")
        words = words or (cut(mark.words, room - 1) if room > 3 and not mark.short else "")
        runs += [(plain[done : mark.at], "line"), (glyphs.mark, mark.style), (words, mark.style)]
        done = mark.at + 1 + cells(words)
        if words and done < until:
            runs.append((" ", "line"))
            done += 1
    return fit(row(*runs, (plain[done:], "line")), width)


def labelled(label: str, label_style: str, value: str, width: int, edge: str) -> list[Run]:
    """What stands left of a chart row: a name, a value at the right, and the edge."""
    inner = max(0, width - cells(edge))
    name = cut(label, inner)
    return [
        (name, label_style),
        (cut(value, inner - cells(name)).rjust(inner - cells(name)), "bold"),
        (edge, "line"),
    ]


def shades(style: str, height: int, known: Mapping[str, str], down: bool = False) -> list[str]:
    """A style for each row of an area: brightest at the axis' far end, so that a peak stands out."""
    names = [style, f"{style}2", f"{style}3"]
    names = [name for name in names if name in known] or [style]
    picks = [names[min(len(names) - 1, (at * len(names)) // max(1, height))] for at in range(height)]
    return picks[::-1] if down else picks

"""Lines of styled segments into one SVG that looks like a terminal, the same to the last dot on every machine.

Used by ``make.py``. Text has one x for each character (browsers get spaces and wide fonts wrong otherwise); braille,
blocks and lines are drawn as shapes, so no font needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

CELL, LINE, SIZE = 10.0, 21.0, 16
EDGE, TOP = 14.0, 38.0
DOTS = (0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80)
"""Bits of a braille cell, row by row, left then right."""


@dataclass(frozen=True)
class Piece:
    """A run of text in one style; colours as ``#rrggbb``."""

    text: str
    color: str
    ground: str
    bold: bool = False


def picture(lines: Sequence[Sequence[Piece]], ground: str, title: str) -> str:
    """The whole SVG."""
    columns = max(sum(len(piece.text) for piece in line) for line in lines)
    width, height = columns * CELL + 2 * EDGE, len(lines) * LINE + TOP + EDGE
    body = "".join(part for at, line in enumerate(lines) for part in _line(line, TOP + at * LINE))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">'
        f"<style>text{{font:{SIZE}px 'DejaVu Sans Mono','Menlo','Consolas',monospace;white-space:pre}}"
        "text.b{font-weight:bold}</style>"
        f'<rect width="100%" height="100%" rx="9" fill="{ground}"/>'
        f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="9" fill="none" stroke="#39424c"/>'
        + "".join(
            f'<circle cx="{18 + 18 * at}" cy="19" r="5.5" fill="{color}"/>'
            for at, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        )
        + f'<text x="{width / 2:g}" y="24" text-anchor="middle" fill="#8a8f98" style="font-size:13px">{title}</text>'
        f"{body}</svg>\n"
    )


def _line(line: Iterable[Piece], y: float) -> Iterator[str]:
    x = EDGE
    for piece in line:
        size = len(piece.text) * CELL
        yield f'<rect x="{x:g}" y="{y:g}" width="{size:g}" height="{LINE:g}" fill="{piece.ground}"/>'
        yield from _piece(piece, x, y)
        x += size


def _piece(piece: Piece, x: float, y: float) -> Iterator[str]:
    dots: list[str] = []
    shapes: list[str] = []
    places: list[str] = []
    chars: list[str] = []
    for at, char in enumerate(piece.text):
        left = x + at * CELL
        shape = _shape(char, left, y)
        if "\u2800" <= char <= "\u28ff":
            dots += _dots(ord(char) - 0x2800, left, y)
        elif shape is not None:
            shapes.append(shape)
        elif char != " ":
            places.append(f"{left:g}")
            chars.append(char)
    if dots:
        # a line of no length with round ends: the shortest way to write a dot
        yield f'<path stroke="{piece.color}" stroke-width="3.5" stroke-linecap="round" d="{"".join(dots)}"/>'
    if shapes:
        yield f'<path fill="{piece.color}" d="{"".join(shapes)}"/>'
    if chars:
        bold = ' class="b"' if piece.bold else ""
        text = escape("".join(chars))
        yield f'<text{bold} y="{y + 15.5:g}" fill="{piece.color}" x="{" ".join(places)}">{text}</text>'


def _dots(bits: int, x: float, y: float) -> Iterator[str]:
    for at, bit in enumerate(DOTS):
        if bits & bit:
            yield f"M{x + CELL * (0.25 + 0.5 * (at % 2)):g} {y + LINE * (0.125 + 0.25 * (at // 2)):.1f}h0"


def _rect(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z"


def _shape(char: str, x: float, y: float) -> str | None:
    """The path of a character that fonts draw badly; None: leave it to the font."""
    code = ord(char)
    if 0x2581 <= code <= 0x2588:
        tall = LINE * (code - 0x2580) / 8
        return _rect(x, y + LINE - tall, CELL, tall)
    middle, centre = y + LINE / 2, x + CELL / 2
    lines = {
        "▀": _rect(x, y, CELL, LINE / 2),
        "─": _rect(x, middle - 0.6, CELL, 1.2),
        "╌": _rect(x + 1, middle - 0.6, 3, 1.2) + _rect(x + 6, middle - 0.6, 3, 1.2),
        "━": _rect(x, middle - 1.6, CELL, 3.2),
        "│": _rect(centre - 0.6, y, 1.2, LINE),
        "┼": _rect(centre - 0.6, y, 1.2, LINE) + _rect(x, middle - 0.6, CELL, 1.2),
        "┊": "".join(_rect(centre - 0.7, y + LINE * part / 4 + 1.2, 1.4, 2.8) for part in range(4)),
        "╭": _rect(centre - 0.6, middle, 1.2, LINE / 2) + _rect(centre, middle - 0.6, CELL / 2, 1.2),
        "╮": _rect(centre - 0.6, middle, 1.2, LINE / 2) + _rect(x, middle - 0.6, CELL / 2, 1.2),
        "╰": _rect(centre - 0.6, y, 1.2, LINE / 2) + _rect(centre, middle - 0.6, CELL / 2, 1.2),
        "╯": _rect(centre - 0.6, y, 1.2, LINE / 2) + _rect(x, middle - 0.6, CELL / 2, 1.2),
        "■": _rect(x + 0.8, middle - 4.4, 8.8, 8.8),
        "◆": f"M{centre:g} {middle - 5.6:g}l5 5.6l-5 5.6l-5 -5.6z",
        "▸": f"M{x + 2:g} {middle - 5:g}l6.5 5l-6.5 5z",
        "▲": f"M{centre:g} {middle - 5:g}l5 10h-10z",
        "▼": f"M{centre:g} {middle + 5:g}l5 -10h-10z",
        "●": _circle(centre, middle, 4.6),
    }
    return lines.get(char)


def _circle(x: float, y: float, radius: float) -> str:
    arc = f"a{radius:g} {radius:g} 0 1 0"
    return f"M{x - radius:g} {y:g}{arc} {2 * radius:g} 0{arc} {-2 * radius:g} 0z"

"""The three sets of characters a screen may be drawn with: braille, block, and plain ASCII.

Chosen once from the terminal (see ``terminal``) or by the ``G`` key; drawing functions are handed one of them.
A set must hold a character for every purpose, so that nothing outside this file asks which one is in use.
"""

from __future__ import annotations

from dataclasses import dataclass

from .rows import Row, cells, row


@dataclass(frozen=True)
class Glyphs:
    """``columns`` chart columns share a cell, which has ``levels`` heights upwards and ``levels_down`` downwards.

    ``up`` / ``down`` are indexed by the level of each column of a cell, as one number in base ``levels + 1``.
    """

    name: str
    columns: int
    levels: int
    levels_down: int
    up: str
    down: str
    core: str
    plain: bool
    axis: str = "│"
    cross: str = "┼"
    line: str = "─"
    gap: str = "╌"
    mark: str = "◆"
    drop: str = "┊"
    bar: str = "━"
    rest: str = "─"
    arrow: str = "→"
    better: str = "▲"
    worse: str = "▼"
    same: str = "≈"
    open: str = "·"
    cursor: str = "▸"
    left: str = "‹"
    right: str = "›"
    square: str = "■"
    times: str = "×"
    dots: str = "…"
    said: str = "›"
    dot: str = "·"


def _braille(down: bool) -> str:
    left, right = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
    if not down:
        left, right = left[::-1], right[::-1]
    return "".join(
        " " if a + b == 0 else chr(0x2800 + sum(left[:a]) + sum(right[:b])) for a in range(5) for b in range(5)
    )


BRAILLE = Glyphs("braille", 2, 4, 4, _braille(False), _braille(True), " ▁▂▃▄▅▆▇█", False)
BLOCK = Glyphs("block", 1, 8, 2, " ▁▂▃▄▅▆▇█", " ▀█", " ▁▂▃▄▅▆▇█", False)
ASCII = Glyphs(
    "ascii", 1, 3, 3, " .:#", " ':#", " .:-=+*##", True,
    axis="|", cross="+", line="-", gap=".", mark="^", drop=":", bar="=", rest="-", arrow=">", better="^", worse="v",
    same="~", open=".", cursor=">", left="<", right=">", square="#", times="x", dots="~", said=">", dot="-",
)  # fmt: skip

SETS = {each.name: each for each in (BRAILLE, BLOCK, ASCII)}

_ASCII = {
    "\ufffd": "?", "°": " ",
    "→": ">", "←": "<", "↑": "^", "↓": "v", "–": "-", "—": "-", "×": "x", "±": "~", "…": "~", "·": "-", "≈": "~",
    "‹": "<", "›": ">", "▲": "^", "▼": "v", "⌁": "?", "’": "'", "‘": "'", "“": '"', "”": '"', "é": "e", "ü": "u",
}  # fmt: skip


def spelled(text: str) -> str:
    """``text`` in ASCII, as wide as before: a stand-in where there is one, else a question mark a column."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ASCII.get(char) or "?" * cells(char) for char in text)


def printable(each: Row, plain: bool) -> Row:
    """The row with nothing that a terminal would obey rather than show (``plain``: in ASCII); as wide as before."""
    if all(text.isprintable() for text, _ in each):
        return row(*((spelled(text), style) for text, style in each)) if plain else each
    shown = (("".join(_shown(char) for char in text), style) for text, style in each)
    return row(*((spelled(text) if plain else text, style) for text, style in shown))


def _shown(char: str) -> str:
    return char if char.isprintable() else "\ufffd" * cells(char)

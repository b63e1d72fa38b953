"""Rows: a line of the screen as runs of (text, style name), and how they are cut, padded and laid over each other.

Every drawing function returns these, so a test reads them as strings; ``paint`` turns them into what Textual draws.
Never holds a colour: a style is words such as ``bold wait`` or ``text on-bar``, resolved by the palette.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

Run: TypeAlias = tuple[str, str]
Row: TypeAlias = tuple[Run, ...]

BLANK: Row = ()


def cells(text: str) -> int:
    """Columns that ``text`` takes on a terminal."""
    return len(text) if text.isascii() else _wide_cells(text)


@lru_cache(maxsize=4096)
def _wide_cells(text: str) -> int:
    return sum(_cell(char) for char in text)


@lru_cache(maxsize=4096)
def _cell(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` in at most ``width`` columns; what was cut off is marked."""
    if cells(text) <= width:
        return text
    if width <= cells(ellipsis):
        return ellipsis[: max(0, width)]
    return _head(text, width - cells(ellipsis)) + ellipsis


def _head(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    taken, used = [], 0
    for char in text:
        used += _cell(char)
        if used > width:
            break
        taken.append(char)
    return "".join(taken)


def width_of(row: Iterable[Run]) -> int:
    """Columns that the runs take together."""
    return sum(cells(text) for text, _ in row)


def row(*runs: Run) -> Row:
    """The runs as one row: empty ones dropped, neighbours that look alike joined (each segment costs 40 bytes).

    Spaces show nothing but their ground, so they join whatever stands before or after them on the same one.
    """
    joined: list[Run] = []
    for text, style in runs:
        if not text:
            continue
        if joined:
            before, look = joined[-1]
            if look == style or (text.isspace() and ground_of(look) == ground_of(style)):
                joined[-1] = (before + text, look)
                continue
            if before.isspace() and ground_of(look) == ground_of(style):
                joined[-1] = (before + text, style)
                continue
        joined.append((text, style))
    return tuple(joined)


@lru_cache(maxsize=512)
def ground_of(style: str) -> str:
    """The ground that a style stands on; empty: the screen's own."""
    return next((word for word in style.split() if word.startswith("on-")), "")


def clip(runs: Sequence[Run], width: int) -> Row:
    """At most ``width`` columns of the row, cut without a mark."""
    kept: list[Run] = []
    left = width
    for text, style in runs:
        if left <= 0:
            break
        size = cells(text)
        kept.append((text, style) if size <= left else (_head(text, left), style))
        left -= size
    return row(*kept)


def fit(runs: Sequence[Run], width: int, style: str = "text") -> Row:
    """Exactly ``width`` columns: cut, or padded with ``style``."""
    kept = clip(runs, width)
    short = width - width_of(kept)
    return row(*kept, (" " * short, style)) if short > 0 else kept


def spread(left: Sequence[Run], right: Sequence[Run], width: int, style: str = "text") -> Row:
    """``left`` and ``right`` at the two edges; where there is no room for both, the left one is cut."""
    right = clip(right, width)
    return row(*fit(left, width - width_of(right), style), *right)


def beside(left: Sequence[Row], right: Sequence[Row], width: int) -> list[Row]:
    """Two blocks of rows next to each other; ``width`` is the left one's."""
    count = max(len(left), len(right))
    return [
        row(*fit(left[at] if at < len(left) else BLANK, width), *(right[at] if at < len(right) else BLANK))
        for at in range(count)
    ]


def first_that_fits(width: int, *choices: Sequence[Run]) -> Row:
    """The first (richest) choice that fits into ``width``; the last one, cut, where none does."""
    for choice in choices:
        if width_of(choice) <= width:
            return row(*choice)
    return clip(choices[-1], width)


def faded(found: Iterable[Row]) -> list[Row]:
    """The same rows in grey, for figures that are no longer news: words dim, drawings faint, fills without colour."""
    return [row(*((text, _faded(style)) for text, style in each)) for each in found]


@lru_cache(maxsize=512)
def _faded(style: str) -> str:
    ground = ground_of(style)
    drawn = ground[3:] in FILLS or any(word.rstrip("23") in DRAWINGS for word in style.split())
    return f"{'faint' if drawn else 'dim'} {'on-old' if ground[3:] in FILLS else ground}".rstrip()


DRAWINGS = frozenset(("model", "cpu", "rate", "line", "faint"))
FILLS = frozenset(("wait", "start", "forward", "backward", "optimizer", "other"))


def text_of(found: Iterable[Row]) -> str:
    """What a person reads, without styles: for tests and for a screen that cannot draw."""
    return "\n".join("".join(text for text, _ in each).rstrip() for each in found)

"""Rows into what Textual draws: one Segment for each run of equal style, its style resolved once by the palette.

Called by the canvas for rows that changed. Segments do not inherit a widget's background, so each carries its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from .palette import ATTRIBUTES, FAINT_WHEN_MONO, THEMES
from .rows import Run, fit


@lru_cache(maxsize=2048)
def style_of(words: str, theme: str, mono: bool) -> Style:
    """The style that ``bold wait on-bar`` means under a theme; an unknown word is a mistake and raises KeyError."""
    colours = THEMES[theme]
    color, ground, attributes = "text", "ground", set[str]()
    for word in words.split():
        if word in ATTRIBUTES:
            attributes.add(word)
        elif word.startswith("on-"):
            ground = word[3:]
        else:
            color = word
    if mono:
        if ground == "cursor":
            attributes.add("reverse")
        return Style(bold="bold" in attributes, reverse="reverse" in attributes, dim=color in FAINT_WHEN_MONO)
    return Style(color=colours[color], bgcolor=colours[ground], bold="bold" in attributes)


def strip_of(row: Sequence[Run], width: int, theme: str, mono: bool) -> Strip:
    """The row as a strip of exactly ``width`` columns."""
    runs = fit(row, width)
    return Strip([Segment(text, style_of(style, theme, mono)) for text, style in runs], width)

"""Rows into what Textual draws: one Segment for each run of equal style, its style resolved once by the palette.

Called by the canvas for rows that changed. Segments do not inherit a widget's background, so each carries its own;
what goes to the terminal is only what differs from the segment before, which halves the bytes of a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.color import Color, ColorSystem
from rich.console import Console
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
    return LeanStrip([Segment(text, style_of(style, theme, mono)) for text, style in runs], width)


class LeanStrip(Strip):
    """A strip that writes a colour only where it changes (Textual's own names every colour for every segment)."""

    _written: str | None = None

    def render(self, console: Console) -> str:
        """The line as terminal sequences, ending with everything reset."""
        if self._written is None:
            self._written = _sequences(self, console._color_system or ColorSystem.TRUECOLOR)
        return self._written


Look = tuple[str, str, str]
"""SGR parameters of a style: attributes, foreground, background."""
PLAIN: Look = ("", "", "")


def _sequences(strip: Strip, system: ColorSystem) -> str:
    parts: list[str] = []
    look = PLAIN
    for text, style, _ in strip:
        wanted = PLAIN if style is None else look_of(style, system)
        if wanted != look:
            parts.append(_change(look, wanted))
            look = wanted
        parts.append(text)
    return "".join(parts) + ("\x1b[0m" if look != PLAIN else "")


@lru_cache(maxsize=1024)
def _change(old: Look, new: Look) -> str:
    """The shortest sequence from one look to the next: an attribute or a colour that ends needs a reset."""
    keeps = old[0] == new[0] and all(now or not before for before, now in zip(old[1:], new[1:], strict=True))
    if keeps:
        codes = [now for before, now in zip(old, new, strict=True) if now and now != before]
    else:
        codes = ["0", *(code for code in new if code)]
    return f"\x1b[{';'.join(codes)}m"


@lru_cache(maxsize=1024)
def look_of(style: Style, system: ColorSystem) -> Look:
    """A style in the colours that the terminal has."""
    attributes = [code for code, on in (("1", style.bold), ("2", style.dim), ("7", style.reverse)) if on]
    return ";".join(attributes), _codes(style.color, system, True), _codes(style.bgcolor, system, False)


def _codes(color: Color | None, system: ColorSystem, foreground: bool) -> str:
    return "" if color is None else ";".join(color.downgrade(system).get_ansi_codes(foreground))

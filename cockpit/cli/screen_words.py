"""The options of the screen, for every verb that shows one: which characters it is drawn with, whether keys may act.

Checked before anything is started: a wrong word must cost no training its screen.
"""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.model.errors import UsageError

from .words import Option, Words

SCREEN_OPTIONS: tuple[Option, ...] = (
    Option("--glyphs", "draw with braille, block or ascii characters (default: by the terminal)", ("SET",)),
    Option("--readonly", "a screen whose keys change nothing of the run, as for a projector"),
)


@dataclass(frozen=True)
class Look:
    """``glyphs``: the name of a set, None: by the terminal."""

    glyphs: str | None = None
    readonly: bool = False


def look_of(words: Words) -> Look:
    """What the options say; raises UsageError for characters that are not known."""
    # only where it is asked for: verbs of the shell start at once
    glyphs = words.one("--glyphs")
    if glyphs is not None:
        from cockpit.tui.glyphs import SETS

        if glyphs not in SETS:
            raise UsageError(f"--glyphs cannot be {glyphs!r}: {', '.join(SETS)}")
    return Look(glyphs, words.has("--readonly"))

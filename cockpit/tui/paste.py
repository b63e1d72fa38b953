"""The box that shows the setup as lines to paste, in case the terminal did not take them into its clipboard. Pure.

Called by ``doing`` with what ``history.paste`` says, which it hands on so that the key knows one place.
"""

from __future__ import annotations

from cockpit.config.export import Export
from cockpit.history.paste import lines_to_paste

from .clean import clean
from .dialogs import WIDE, box, keys
from .footer import wrapped
from .glyphs import Glyphs
from .rows import Row, Run, cells

__all__ = ["lines_to_paste", "paste_rows"]


def paste_rows(found: Export, width: int, height: int, top: int, glyphs: Glyphs) -> list[Row]:
    """The lines, wrapped where they are too long, then what they do not say; ``top``: the first row shown."""
    size = min(max(WIDE, *(cells(line) + 4 for line in found.lines)), width)
    body: list[list[Run]] = [
        [(piece, "bold text")] for line in found.lines for piece in _pieces(clean(line), max(1, size - 4))
    ]
    body += [[(piece, "dim")] for note in found.notes for piece in ["", *wrapped(clean(note), max(1, size - 4))]]
    room = max(1, height - 5)
    shown = body[min(top, max(0, len(body) - room)) :][:room]
    more = (("↑↓", "scroll"),) if len(body) > room else ()
    foot = keys(("esc", "close"), *more)
    return box("copied: paste it into the script", shown, foot, size, glyphs)[:height]


def _pieces(line: str, width: int) -> list[str]:
    """A line of code cut at the width: joined again they are the line."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]

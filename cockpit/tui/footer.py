"""The bottom of the screen: the keys that work, and above them the sentence that was just said. Pure.

Called by the frame. The footer is the table of actions; a notice is data and lies over the rows above it for a while.
"""

from __future__ import annotations

from cockpit.history.actions import ACTIONS

from .output import footer_words
from .rows import Row, Run, cells, cut, fit, width_of
from .view import View

NOTICE_ROWS = 3
KEPT = ("help", "leave")
"""Words that stay in the footer however narrow it is."""


def footer_row(view: View, width: int) -> Row:
    """The keys that work now, from the table of actions; the least important are dropped first."""
    words = footer_words(view) if view.page else _words(view)
    note = [("read only ", "dim on-bar")] if view.readonly else []
    while len(words) > 1 and _width(words) + width_of(note) > width:
        loose = [at for at, (_, word) in enumerate(words) if word not in KEPT]
        words.pop(loose[-1] if loose else 0)
    runs: list[Run] = [(" ", "text on-bar")]
    for key, word in words:
        runs += [(key, "bold key on-bar"), (f" {word}  ", "dim on-bar")]
    return fit([*runs, *note], width, "text on-bar")


def _words(view: View) -> list[tuple[str, str]]:
    over = view.known.phase in ("ended", "lost")
    return [
        ("←→" if action.name == "more" else action.shown.split()[0], action.footer)
        for action in ACTIONS
        if action.footer and not (action.acts and (view.readonly or over))
    ]


def _width(words: list[tuple[str, str]]) -> int:
    return 1 + sum(cells(key) + cells(word) + 3 for key, word in words)


def notice_rows(view: View, width: int) -> list[Row]:
    """What was just said, in at most three rows; empty when nothing was."""
    room = width - 4
    if not view.notice or room < 8:
        return []
    lines = wrapped(view.notice, room)
    if len(lines) > NOTICE_ROWS:
        lines = [*lines[: NOTICE_ROWS - 1], cut(" ".join(lines[NOTICE_ROWS - 1 :]), room)]
    mark = view.glyphs.cursor
    return [
        fit(
            [(f" {mark if at == 0 else ' '} ", "bold key on-cursor"), (line, "text on-cursor")], width, "text on-cursor"
        )
        for at, line in enumerate(lines)
    ]


def wrapped(text: str, width: int) -> list[str]:
    """``text`` broken between words where it can be."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
        while cells(line) > width:
            head = cut(line, width, "")
            # a character wider than the line would never get shorter
            lines.append(head or "?")
            line = line[max(1, len(head)) :]
    return [*lines, line] if line else lines

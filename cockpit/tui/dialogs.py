"""What is drawn on top: help, saving and leaving, as boxes of rows. Pure; the screens that show them are ``boxes``.

Each box says which keys work in it. Nothing that stops or loses work happens on one key.
"""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.history.actions import ACTIONS
from cockpit.history.stacks import Dump, lines_of
from cockpit.history.state import State
from cockpit.model.knobs import Value, show_value

from .clean import clean
from .footer import wrapped
from .format import factor, rate
from .glyphs import Glyphs, printable
from .rows import Row, Run, cells, cut, fit, row
from .words import label_of

WIDE, WIDEST = 73, 80


def box(
    title: str,
    body: Sequence[Sequence[Run]],
    foot: Sequence[Run],
    width: int,
    glyphs: Glyphs,
    air: bool = True,
) -> list[Row]:
    """Rows of exactly ``width`` columns: a frame with a title, the body, a blank row (``air``) and the keys."""
    corners = "++++" if glyphs.plain else "╭╮╰╯"
    across, side = glyphs.line, glyphs.axis
    edge, inner = "faint on-panel", max(0, width - 4)
    name = cut(f" {title} ", max(0, width - 4))
    top = row((corners[0] + across, edge), (name, "bold text on-panel"), (across * (width - 3 - cells(name)), edge))
    rows = [row(*fit(top, width - 1, edge), (corners[1], edge))]
    for each in [*body, *([()] if air else []), foot]:
        inside = [(text, f"{style} on-panel") for text, style in each]
        rows.append(row((side + " ", edge), *fit(inside, inner, "text on-panel"), (" " + side, edge)))
    rows.append(row((corners[2] + across * max(0, width - 2) + corners[3], edge)))
    return [printable(fit(each, width, edge), glyphs.plain) for each in rows]


def keys(*pairs: tuple[str, str]) -> list[Run]:
    """The keys that work in a box, with their words."""
    return [run for key, word in pairs for run in ((key, "bold key"), (f" {word}   ", "dim"))]


def help_rows(width: int, height: int, top: int, glyphs: Glyphs, first: str = "") -> list[Row]:
    """The page of keys, from the table of actions, in ``height`` rows; ``top``: the first line shown.

    ``first``: the group that is told before the others.
    """
    size = min(WIDEST, width)
    room = max(1, height - 3)
    lines = help_lines(first)
    if len(lines) > room:
        lines = help_lines(first, headings=False)
    shown = lines[min(top, max(0, len(lines) - room)) :][:room]
    more = (("↑↓", "scroll"),) if len(lines) > room else ()
    return box("keys", shown, keys(("esc", "close"), *more), size, glyphs, air=False)[:height]


def help_lines(first: str = "", headings: bool = True) -> list[list[Run]]:
    """One line an action (those of one kind share one), with the verb that does it from a shell."""
    lines: list[list[Run]] = []
    group = ""
    pending = sorted(ACTIONS, key=lambda action: action.group != first)
    while pending:
        action = pending.pop(0)
        if action.group != group:
            group = action.group
            lines += [[(group, "bold text")]] if headings else []
        shown = action.shown
        while pending and pending[0].help == action.help:
            shown = f"{shown} {pending.pop(0).shown}"
        verb = f"cockpit {action.verb}" if action.verb else ""
        lines.append([(f" {shown:<13}", "bold key"), (f"{action.help:<45} ", "text"), (verb, "faint")])
    return lines


def dump_rows(dump: Dump, width: int, height: int, top: int, glyphs: Glyphs) -> list[Row]:
    """Where threads and workers stand, in ``height`` rows; ``top``: the first line shown. Its text is data."""
    size = max(min(WIDE, width), width - 8)
    said = [clean(line) for line in lines_of(dump)]
    lines: list[list[Run]] = [
        [(line, "text" if line.startswith("    ") else "bold text")] if line else [] for line in said
    ]
    if not dump.answered:
        lines = [*([(piece, "worse")] for piece in wrapped(dump.why, max(8, size - 6))), [], *lines]
    room = max(1, height - 3)
    shown = lines[min(top, max(0, len(lines) - room)) :][:room]
    more = (("↑↓", "scroll"),) if len(lines) > room else ()
    return box("stacks", shown, keys(("esc", "close"), *more), size, glyphs, air=False)[:height]


def leave_rows(state: State, width: int, glyphs: Glyphs) -> list[Row]:
    """With a training running: detach, stop softly, or stay."""
    size = min(WIDE, width)
    body: list[list[Run]] = [
        [("The training goes on without this screen.", "text")],
        [("Back to it: ", "dim"), (f"cockpit attach {state.run}".rstrip(), "text")],
    ]
    return box("leave", body, keys(("d", "detach"), ("s", "stop softly"), ("esc", "stay")), size, glyphs)


def save_rows(
    path: str,
    changes: Sequence[tuple[str, Value | None, Value]],
    state: State,
    replaces: bool,
    size: int,
    glyphs: Glyphs,
) -> list[Row]:
    """Before anything is written: where, and what it would hold."""
    size = min(max(WIDE, cells(path) + 22), size)
    path = cut_front(path, size - 22)
    body: list[list[Run]] = [
        [("to ", "dim"), (path, "text"), (" (replaces it)" if replaces else "", "dim")],
        [],
    ]
    longest = max((cells(label_of(name)) for name, _, _ in changes), default=0) + 1
    for name, script, value in changes:
        body.append(
            [
                (f"  {label_of(name)}".ljust(2 + min(max(14, longest), 34)), "text"),
                (f"{show_value(script)} {glyphs.arrow} ", "dim"),
                (show_value(value), "bold better"),
            ]
        )
    base = state.baseline.samples_per_s if state.baseline else None
    now = next((entry.after_samples_per_s for entry in reversed(state.ledger) if entry.after_samples_per_s), None)
    if base and now:
        body += [
            [],
            [
                (
                    f"{rate(base)} {glyphs.arrow} {rate(now)} samples/s, {factor(now / base, glyphs.times)}",
                    "dim",
                )
            ],
        ]
    return box("save this setup", body, keys(("enter", "save"), ("esc", "not now")), size, glyphs)


def saved_rows(path: str, command: str, width: int, glyphs: Glyphs) -> list[Row]:
    """After writing: the command that uses it, on a line of its own so that it can be copied."""
    size = min(max(WIDE, cells(command) + 14, cells(path) + 14), width)
    body: list[list[Run]] = [
        [("saved to ", "dim"), (cut_front(path, size - 14), "text")],
        [],
        *(
            [("        " if at else "use it: ", "dim"), (piece, "bold text")]
            for at, piece in enumerate(wrapped(command, max(8, size - 12)))
        ),
    ]
    return box("saved", body, keys(("esc", "close")), size, glyphs)


def cut_front(path: str, width: int) -> str:
    """A path in at most ``width`` columns: its end says more than its beginning."""
    if cells(path) <= width:
        return path
    return "…" + path[max(0, len(path) - max(0, width - 1)) :]

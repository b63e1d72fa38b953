"""Where a step's time goes, as one bar: data wait first, each phase as long as it lasts. Pure drawing.

Bars of one picture share a scale, so that a shorter step is a shorter bar. Called by the frame; a phase that was
not measured is left out of the bar and never drawn as zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.history.state import Phases

from .format import share, step_time
from .glyphs import Glyphs
from .rows import Row, Run, cells, cut, fit, row, spread


@dataclass(frozen=True)
class Part:
    """One phase of a bar: the field of ``Phases``, its name, its style, and its letter where there is no colour."""

    field: str
    name: str
    style: str
    letter: str


PARTS: tuple[Part, ...] = (
    Part("wait_ms", "data wait", "wait", "D"),
    Part("start_ms", "loader start", "start", "S"),
    Part("forward_ms", "forward", "forward", "F"),
    Part("backward_ms", "backward", "backward", "B"),
    Part("optimizer_ms", "optimizer", "optimizer", "O"),
    Part("other_ms", "other", "other", "-"),
)

MATTERS = 0.02
"""A loader start below this share of a step, in every bar, is not worth a colour of its own in the legend."""


def bar(phases: Phases, width: int, longest_ms: float, mono: bool) -> list[Run]:
    """The bar in at most ``width`` columns; ``longest_ms`` is what fills all of them."""
    if width <= 0 or not (math.isfinite(longest_ms) and longest_ms > 0.0 and phases.step_ms > 0.0):
        return []
    runs: list[Run] = []
    done, spent_ms = 0, 0.0
    for part in PARTS:
        lasts_ms = getattr(phases, part.field)
        if lasts_ms is None or not math.isfinite(lasts_ms):
            continue
        spent_ms += max(0.0, lasts_ms)
        # edges are rounded, not lengths: errors do not add up over the phases
        edge = min(width, round(width * spent_ms / longest_ms))
        runs.append(_piece(part, lasts_ms / phases.step_ms, edge - done, mono))
        done = max(done, edge)
    return runs


def _piece(part: Part, of_step: float, size: int, mono: bool) -> Run:
    if size <= 0:
        return ("", "text")
    percent = share(of_step)
    short = f"{part.letter} {percent}" if mono else percent
    label = next((words for words in (f"{part.name} {percent}", short) if cells(words) + 2 <= size), "")
    if mono:
        return (f" {label} ".center(size, part.letter) if label else part.letter * size, "text")
    bold = "bold " if part.field == "wait_ms" else ""
    return (label.center(size), f"{bold}ink on-{part.style}")


def bar_row(
    name: str, phases: Phases | None, width: int, label: int, longest_ms: float, mono: bool, empty: str = ""
) -> Row:
    """A bar with its name before and the step's time behind it; ``empty`` is said where there is none yet."""
    style = "bold" if name == "now" else "dim"
    left: Run = (cut(name, label).ljust(label), style)
    if phases is None:
        return fit([left, (cut(empty, max(0, width - label)), "faint")], width)
    figure = step_time(phases.step_ms).rjust(9)
    room = width - label - cells(figure)
    return spread([left, *bar(phases, room, longest_ms, mono)], [(figure, style)], width)


def legend(shown: Mapping[str, Phases | None], width: int, label: int, glyphs: Glyphs, mono: bool) -> Row:
    """What the colours mean; the loader's start and the rest only where they matter."""
    kept = []
    for part in PARTS:
        shares = [_share(phases, part.field) for phases in shown.values() if phases is not None]
        if part.field not in ("start_ms", "other_ms") or any(value >= MATTERS for value in shares):
            kept.append(part)
    needed = label + sum(cells(part.name) + 2 for part in kept)
    between = next((size for size in (2, 1) if needed + size * (len(kept) - 1) <= width), 1)
    runs: list[Run] = [(" " * label, "text")]
    for part in kept:
        mark: Run = (part.letter, "bold") if mono else (glyphs.square, part.style)
        runs += [mark, (f" {part.name}{' ' * between}", "dim")]
    return fit(row(*runs), width)


def _share(phases: Phases, field: str) -> float:
    value = getattr(phases, field)
    return 0.0 if value is None or phases.step_ms <= 0.0 else float(value) / phases.step_ms

"""The run's charts: throughput where there is room, and the mirrored one, GPU up and CPU down, with its changes.

Called by the frame. Turns the state's history into the numbers that ``chart`` draws; a stretch in which nothing was
measured stays a gap. Where no GPU tells anything, the upper half is the model's share of a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.history.gpu import lead_device
from cockpit.history.state import Point

from .chart import Mark, area, axis_row, labelled, round_up, shades, with_marks
from .clean import clean
from .format import clock, rate, share
from .head import mark_of
from .machine import why_no_probe
from .now import PROBE_EXPECTED_S
from .palette import DARK
from .plan import LABEL, Plan
from .rows import Row, Run, row
from .series import Axis, Column, columns, landed
from .view import View
from .words import knobs_of, values_of

NEWEST = 4
"""The figure beside a chart is the mean of so many newest points: two seconds."""


def charts(view: View, plan: Plan, width: int) -> list[Row]:
    """All chart rows of the plan."""
    if not plan.up:
        return []
    glyphs, room = view.glyphs, max(1, width - LABEL - 1)
    column_s = view.column_s * (2 // glyphs.columns)
    axis = Axis(_ends_at(view), room * glyphs.columns, column_s, glyphs.columns)
    laid = columns(view.known.rings, axis)
    marks = marks_of(view, axis)
    above = _rate_rows(view, plan.rate, laid, marks) if plan.rate else []
    return [*above, *_mirrored(view, plan, laid, marks, clock(column_s * axis.count))]


def _ends_at(view: View) -> float:
    """The right edge of the axis: now, or the end of what is known where nothing comes any more."""
    state = view.known
    if state.ended_s is not None and math.isfinite(state.ended_s):
        return state.ended_s
    points = state.rings[0].points if state.rings else ()
    newest = points[-1].at_s if points else view.now_s
    # a clock that jumps must not push the picture off the axis
    end_s = view.now_s if 0.0 <= view.now_s - newest < 86400.0 else newest
    return end_s if math.isfinite(end_s) else 0.0


def marks_of(view: View, axis: Axis) -> list[Mark]:
    """Changes that landed within the axis, each at its cell, in the style of its outcome."""
    found: dict[int, Mark] = {}
    for column, entry in landed(view.known.ledger, axis):
        style = "alarm" if entry.state in ("rolled_back", "ended") else mark_of(entry, view)[1]
        at = column // view.glyphs.columns
        # two that landed in one cell share a mark, and it says so
        more = " +1" if at in found else ""
        style = f"bold {'text' if style == 'dim' else style}"
        found[at] = Mark(at, knobs_of(entry, view) + more, style, values_of(entry, view) + more)
    return [found[at] for at in sorted(found)]


def _rate_rows(view: View, height: int, laid: list[Column], marks: list[Mark]) -> list[Row]:
    top = round_up(max([column.samples_per_s or 0.0 for column in laid] or [0.0]))
    values = [None if column.samples_per_s is None or top <= 0 else column.samples_per_s / top for column in laid]
    labels = {0: Label("", rate(top) if top > 0 else ""), 1: Label("samples/s"), height - 1: Label("", "0")}
    return _area_rows(view, area(values, height, view.glyphs), "rate", labels, marks, down=False)


def _mirrored(view: View, plan: Plan, laid: list[Column], marks: list[Mark], span: str) -> list[Row]:
    glyphs, usable = view.glyphs, view.known.machine.cpus_usable if view.known.machine else 0.0
    half = _upper(view)
    model = [getattr(column, half.field) for column in laid]
    cpu = [None if column.cpu is None or usable <= 0 else min(1.0, column.cpu / usable) for column in laid]
    newest = view.known.rings[0].points[-NEWEST:] if view.known.rings else ()
    busy = _newest([point.cpu for point in newest])
    up = area(model, plan.up, glyphs)
    down = area(cpu, plan.down, glyphs, down=True)
    model_now = share(_newest([getattr(point, half.field) for point in newest]) if _live(view, newest) else None)
    cpu_now = share(busy / usable if busy is not None and usable > 0 and _live(view, newest) else None)
    told = why_no_probe(view.known, view.now_s, PROBE_EXPECTED_S)
    if told:  # words stand in the place of a chart that has nothing to show
        words = [f" {line}" for line in told] + [""] * (plan.up + plan.down)
        up, down = words[: plan.up], words[plan.up : plan.up + plan.down]
        marks = []
    names = {at: Label(word, "", True) for at, word in enumerate(half.words[: plan.up - 1], start=1)}
    names[0] = Label(half.name, model_now)
    upper = _area_rows(view, up, "model", names, marks, False, "text" if told else "")
    lower = _area_rows(view, down, "cpu", {plan.down - 1: Label("CPU", cpu_now)}, marks, True, "text" if told else "")
    per = glyphs.columns
    seen = [
        any(getattr(column, half.field) is not None or column.cpu is not None for column in laid[at : at + per])
        for at in range(0, len(laid), per)
    ]
    ago = f"{span} ago " if len(span) <= 5 else f"{span} "
    middle = row((ago.rjust(LABEL), "faint"), (glyphs.cross, "line"), *axis_row(seen, marks, glyphs))
    return [*upper, middle, *lower]


@dataclass(frozen=True)
class Label:
    """What stands left of a row of a chart; ``more``: it only explains the one above."""

    name: str = ""
    value: str = ""
    more: bool = False


def _label(label: Label, style: str) -> list[Run]:
    return labelled(label.name, "dim" if label.more else f"bold {style}", label.value, LABEL, "")


@dataclass(frozen=True)
class Half:
    """What the upper half shows: a field of the history, its name, and the words below the name."""

    field: str
    name: str
    words: tuple[str, ...] = ()


def _upper(view: View) -> Half:
    """The lead device where it tells, or ever told, how busy it is; else the model's share of a step."""
    lead, seen, rings = lead_device(view.known), view.known.gpu, view.known.rings
    told = any(point.gpu is not None for ring in rings for point in ring.points)
    if seen is None or lead is None or (lead.kernel_active_share is None and not told):
        return Half("model", "MODEL")
    # by the end of its name, as the rows and cards below call it
    place = f"{seen.devices.index(lead) + 1}/{len(seen.devices)}"
    several = (f"{clean(lead.uuid)[-6:]} {place}",) if len(seen.devices) > 1 else ()
    return Half("gpu", "GPU", (*(() if lead.verified else ("unverified",)), *several))


def _live(view: View, newest: Sequence[Point]) -> bool:
    """Whether the newest points are news: after the end, or a long silence, there is no figure of now."""
    return bool(newest) and view.known.ended_s is None and view.now_s - newest[-1].at_s < 10.0


def _newest(values: list[float | None]) -> float | None:
    if not values or values[-1] is None:
        return None
    known = [value for value in values if value is not None]
    return sum(known) / len(known)


def _area_rows(
    view: View,
    lines: list[str],
    style: str,
    labels: dict[int, Label],
    marks: list[Mark],
    down: bool,
    words: str = "",
) -> list[Row]:
    """Rows of a chart with what stands left of them. ``words``: the style of lines that are no chart but words."""
    styles = [words] * len(lines) if words else shades(style, len(lines), DARK, down)
    return [
        row(
            *_label(labels.get(at, Label()), style),
            (view.glyphs.axis, "line"),
            *with_marks(line, styles[at], marks, view.glyphs),
        )
        for at, line in enumerate(lines)
    ]

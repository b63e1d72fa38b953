"""The whole picture as a pure function: a view and a size in, exactly that many rows of exactly that width out.

Called by the app at each tick and key press, and by the tests as text. It draws whatever state it is given, the
oddest included, and never raises for one.
"""

from __future__ import annotations

from cockpit.session.actions import ACTIONS

from .bars import bar_row, legend
from .chart import Mark, area, axis_row, labelled, shades, with_marks
from .clean import clean
from .format import clock, delta, rate, share
from .glyphs import spelled
from .head import badge, change_row, last_told, mark_of, speed_row, title_row
from .machine import cores_row, loader_row, why_no_probe
from .now import PROBE_EXPECTED_S, old, phases_before, phases_now
from .palette import DARK
from .plan import KNOBS_WIDE, Plan, plan_for
from .rows import BLANK, Row, Run, beside, cut, faded, fit, row, width_of
from .series import Axis, Column, columns, landed
from .settings import hint_row, settings_rows
from .trials import trials_rows
from .view import View
from .words import knobs_of

LABEL = 10
"""Columns left of charts and bars, for their names."""


def frame(view: View, width: int, height: int) -> list[Row]:
    """The picture: ``height`` rows of ``width`` columns each."""
    if width <= 0 or height <= 0:
        return []
    plan = plan_for(width, height, len(view.knobs))
    if plan is None:
        return [one_line(view, width)] + [fit(BLANK, width)] * (height - 1)
    head = [title_row(view, width), *_aged(view, [speed_row(view, width), change_row(view, width)])]
    body = [*charts(view, plan, width), *machine_rows(view, plan, width), *step_rows(view, plan, width)]
    found = [*head, *_aged(view, body), *panel_rows(view, plan, width), *log_rows(view, plan, width)]
    found = [fit(each, width) for each in found[: height - 1]]
    found += [fit(BLANK, width)] * (height - 1 - len(found))
    return [*found, footer_row(view, width)]


def _aged(view: View, found: list[Row]) -> list[Row]:
    return faded(found) if old(view) else found


def one_line(view: View, width: int) -> Row:
    """All there is room for: the badge, the rate, the factor, the last change."""
    state, mark = view.known, badge(view)
    speed = speed_row(view, 36)
    told = last_told(state)
    last: list[Run] = []
    if told is not None and told.delta_pct is not None and told.state in ("kept", "settling"):
        glyph, style = mark_of(told, view)
        last = [(f"  {glyph} {delta(told.delta_pct)}", style)]
    return fit([(" ", "text on-bar"), *mark, *speed[:1], *speed[1:], *last], width)


def charts(view: View, plan: Plan, width: int) -> list[Row]:
    """The throughput chart where there is room, and the mirrored chart: model up, CPU down, changes on the axis."""
    if not plan.up:
        return []
    glyphs, room = view.glyphs, max(1, width - LABEL - 1)
    column_s = view.column_s * (2 // glyphs.columns)
    axis = Axis(_ends_at(view), room * glyphs.columns, column_s)
    laid = columns(view.known.rings, axis)
    marks = marks_of(view, axis)
    told = why_no_probe(view.known, view.now_s, PROBE_EXPECTED_S)
    gap = [BLANK] if plan.gaps else []
    return [
        *gap,
        *(_rate_rows(view, plan.rate, laid, marks) if plan.rate else []),
        *_mirrored(view, plan, laid, marks, told, clock(column_s * axis.count)),
    ]


def _ends_at(view: View) -> float:
    """The right edge of the axis: now, or the end of what is known where nothing comes any more."""
    state = view.known
    if state.ended_s is not None:
        return state.ended_s
    newest = state.rings[0].points[-1].at_s if state.rings and state.rings[0].points else view.now_s
    # a clock that jumps must not push the picture off the axis
    return view.now_s if 0.0 <= view.now_s - newest < 86400.0 else newest


def marks_of(view: View, axis: Axis) -> list[Mark]:
    """Changes that landed within the axis, each at its cell, in the style of its outcome."""
    found: dict[int, Mark] = {}
    for column, entry in landed(view.known.ledger, axis):
        style = "alarm" if entry.state == "rolled_back" else mark_of(entry, view)[1]
        words = knobs_of(entry, view.glyphs)
        at = column // view.glyphs.columns
        # two that landed in one cell share a mark, and it says so
        found[at] = Mark(at, f"{words} +1" if at in found else words, f"bold {'text' if style == 'dim' else style}")
    return [found[at] for at in sorted(found)]


def _rate_rows(view: View, height: int, laid: list[Column], marks: list[Mark]) -> list[Row]:
    top = max([column.samples_per_s or 0.0 for column in laid] or [0.0]) * 1.08
    values = [None if column.samples_per_s is None or top <= 0 else column.samples_per_s / top for column in laid]
    labels = {0: ("", rate(top) if top > 0 else ""), 1: ("samples/s", ""), height - 1: ("", "0")}
    return _area_rows(view, area(values, height, view.glyphs), "rate", labels, marks, down=False)


def _mirrored(view: View, plan: Plan, laid: list[Column], marks: list[Mark], told: list[str], span: str) -> list[Row]:
    usable = view.known.machine.cpus_usable if view.known.machine else 0.0
    model = [column.model for column in laid]
    cpu = [None if column.cpu is None or usable <= 0 else min(1.0, column.cpu / usable) for column in laid]
    up = area(model, plan.up, view.glyphs)
    down = area(cpu, plan.down, view.glyphs, down=True)
    upper = _area_rows(view, up, "model", {0: ("MODEL", share(_newest(model)))}, marks, down=False)
    lower = _area_rows(view, down, "cpu", {plan.down - 1: ("CPU", share(_newest(cpu)))}, marks, down=True)
    if told:
        upper = [row(*each[:3], (f" {told[at]}" if at < len(told) else "", "text")) for at, each in enumerate(upper)]
        rest = told[len(upper) :]
        lower = [row(*each[:3], (f" {rest[at]}" if at < len(rest) else "", "text")) for at, each in enumerate(lower)]
    per = view.glyphs.columns
    seen = [any(column.model is not None or column.cpu is not None for column in laid[at : at + per])
            for at in range(0, len(laid), per)]  # fmt: skip
    middle = row(
        (span.rjust(LABEL - 1) + " ", "faint"), (view.glyphs.cross, "line"), *axis_row(seen, marks, view.glyphs)
    )
    return [*upper, middle, *lower]


def _newest(values: list[float | None]) -> float | None:
    """The figure beside a chart is that of its last two columns: the newest one may just have begun."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


def _area_rows(
    view: View, lines: list[str], style: str, labels: dict[int, tuple[str, str]], marks: list[Mark], down: bool
) -> list[Row]:
    styles = shades(style, len(lines), DARK, down)
    return [
        row(
            *labelled(labels.get(at, ("", ""))[0], f"bold {style}", labels.get(at, ("", ""))[1], LABEL, ""),
            (view.glyphs.axis, "line"),
            *with_marks(line, styles[at], marks, view.glyphs),
        )
        for at, line in enumerate(lines)
    ]


def machine_rows(view: View, plan: Plan, width: int) -> list[Row]:
    """Cores and loader."""
    return [
        *([cores_row(view, width, LABEL + 1)] if plan.cores else []),
        *([loader_row(view, width, LABEL + 1)] if plan.loader else []),
    ]


def step_rows(view: View, plan: Plan, width: int) -> list[Row]:
    """Where a step's time goes: baseline where there is room, before the last change, and now, on one scale."""
    if not plan.bars:
        return []
    state = view.known
    shown = {"before": phases_before(state), "now": phases_now(state)}
    if plan.baseline:
        shown = {"baseline": state.baseline.phases if state.baseline else None, **shown}
    longest = max([phases.step_ms for phases in shown.values() if phases is not None] or [0.0])
    empty = {"baseline": "after the first full window", "before": "nothing changed yet", "now": "no whole step yet"}
    rows = [bar_row(name, phases, width, LABEL + 1, longest, view.mono or view.glyphs.plain, empty[name])
            for name, phases in shown.items()]  # fmt: skip
    gap = [BLANK] if plan.gaps else []
    return [*gap, *rows, legend(shown, width, LABEL + 1, view.glyphs, view.mono or view.glyphs.plain)]


def panel_rows(view: View, plan: Plan, width: int) -> list[Row]:
    """Knobs at the left, trials at the right, and the line below both."""
    left = KNOBS_WIDE if width >= 76 else width // 2 + 4
    height = plan.knobs - 1
    blocks = beside(settings_rows(view, left), trials_rows(view, width - left - 2, height), left + 2)
    return [*([BLANK] if plan.gaps else []), *blocks, hint_row(view, width)]


def log_rows(view: View, plan: Plan, width: int) -> list[Row]:
    """The training's own newest output."""
    if not plan.log:
        return []
    said = [clean(line) for line in view.lines if line.strip()][-plan.log :]
    if not said and view.known.output is not None:
        said = [clean(view.known.output.line)]
    lines = [
        row((f"{view.glyphs.said} ", "faint"), (spelled(cut(line, width - 2), view.glyphs), "dim")) for line in said
    ]
    blank = [BLANK] if plan.gaps else []
    return [*blank, *([BLANK] * (plan.log - len(lines))), *lines]


def footer_row(view: View, width: int) -> Row:
    """The keys that work, from the table of actions; the least important are dropped first."""
    shown = [action for action in ACTIONS if action.footer and not (view.readonly and action.acts)]
    runs: list[Run] = [(" ", "text on-bar")]
    words = [(_footer_key(action.name, action.shown), action.footer) for action in shown]
    keep = ("help", "leave")
    while words and width_of([(f"{key} {word}  ", "") for key, word in words]) + 1 > width:
        loose = [at for at, (_, word) in enumerate(words) if word not in keep]
        words.pop(loose[-1] if loose else 0)
    for key, word in words:
        runs += [(spelled(key, view.glyphs), "bold key on-bar"), (f" {word}  ", "dim on-bar")]
    if view.readonly:
        runs.append(("read only", "dim on-bar"))
    return fit(runs, width, "text on-bar")


def _footer_key(name: str, shown: str) -> str:
    return "←→" if name == "more" else shown.split()[0]

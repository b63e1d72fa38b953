"""The whole picture as a pure function: a view and a size in, exactly that many rows of exactly that width out.

Called by the app at each tick and key press, and by the tests as text. It draws whatever state it is given, the
oddest included, and never raises for one.
"""

from __future__ import annotations

from .bars import bar_row, legend
from .charts import charts
from .clean import clean
from .footer import footer_row, notice_rows
from .format import delta
from .glyphs import printable
from .gpu import gpu_card, gpu_rows
from .head import badge, change_row, last_told, mark_of, speed_row, title_row
from .machine import cores_row, loader_row
from .now import old, phases_before, phases_now
from .plan import LABEL, Plan, plan_for
from .rows import BLANK, Row, Run, beside, cut, faded, fit, row
from .settings import hint_row, settings_rows
from .trials import trials_rows
from .view import View


def frame(view: View, width: int, height: int) -> list[Row]:
    """The picture: ``height`` rows of ``width`` columns each."""
    if width <= 0 or height <= 0:
        return []
    plan = plan_for(width, height, len(view.knobs))
    found = [one_line(view, width)] if plan is None else _whole(view, plan, width, height)
    found = [fit(each, width) for each in found[:height]]
    found += [fit(BLANK, width)] * (height - len(found))
    said = notice_rows(view, width)
    if said and height > 1:
        # over whatever stands there: nothing moves
        at = max(1, height - 1 - len(said)) if plan is not None else 1
        found[at : at + len(said)] = said
        found = found[:height]
    # whatever a part of the picture forgot to clean ends here
    return [printable(each, view.glyphs.plain) for each in found]


def _whole(view: View, plan: Plan, width: int, height: int) -> list[Row]:
    head = [title_row(view, width), *_aged(view, [speed_row(view, width), change_row(view, width)])]
    body = _columns(view, plan, width) if plan.right else _stacked(view, plan, width)
    body = body[: height - 4]
    body += [BLANK] * (height - 4 - len(body))
    return [*head, *body, footer_row(view, width)]


def _stacked(view: View, plan: Plan, width: int) -> list[Row]:
    """Everything below one another; trials beside the knobs."""
    left = plan.left
    # an accelerator is worth more than lines that the training prints
    gpu = gpu_rows(view, width, LABEL + 1, max(1, plan.log // 2) if plan.log else 0)
    panels = beside(
        settings_rows(view, left, plan.knobs - 2), trials_rows(view, width - left - 2, plan.knobs - 1), left + 2
    )
    return [
        *_air(plan, 0, _aged(view, charts(view, plan, width))),
        *_aged(view, [*machine_rows(view, plan, width), *gpu]),
        *_air(plan, 1, _aged(view, step_rows(view, plan, width))),
        *_air(plan, 2, [*panels, hint_row(view, width)]),
        *_air(plan, 3, log_rows(view, plan.log - len(gpu), width)),
    ]


def _columns(view: View, plan: Plan, width: int) -> list[Row]:
    """A wide screen: charts, step and knobs at the left; every trial and the output at the right."""
    left, right = plan.left, plan.right
    first = [
        *_air(plan, 0, _aged(view, charts(view, plan, left))),
        *_aged(view, machine_rows(view, plan, left)),
        *_air(plan, 1, _aged(view, step_rows(view, plan, left))),
        *_air(plan, 2, [*settings_rows(view, left, plan.knobs - 2), hint_row(view, left)]),
    ]
    trials = min(max(10, len(view.known.ledger) + 2), (len(first) - 3) * 2 // 3)
    second = [BLANK, *trials_rows(view, right, trials)]
    second += [BLANK] * (trials + 2 - len(second))
    card = _aged(view, gpu_card(view, right))
    second += [*card[: max(0, len(first) - len(second) - 4)], BLANK] if card else []
    said = [each for each in log_rows(view, len(first) - len(second) - 1, right) if each]
    second += [row(("OUTPUT", "bold text")), *said]
    return beside(first, second, width - right)


def _air(plan: Plan, at: int, found: list[Row]) -> list[Row]:
    """A blank row before a part, where the plan has one to spare for it."""
    return [BLANK, *found] if found and at < plan.gaps else found


def _aged(view: View, found: list[Row]) -> list[Row]:
    return faded(found) if old(view) else found


def one_line(view: View, width: int) -> Row:
    """All there is room for: the badge, the rate, the factor, the last change."""
    told = last_told(view.known)
    last: list[Run] = []
    if told is not None and told.delta_pct is not None and told.state in ("kept", "settling"):
        glyph, style = mark_of(told, view)
        last = [(f"  {glyph} {delta(told.delta_pct)}", style)]
    return fit([(" ", "text on-bar"), *badge(view), *_aged(view, [speed_row(view, 36)])[0], *last], width)


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
    state, letters = view.known, view.mono
    shown = {"before": phases_before(state), "now": phases_now(state)}
    if plan.baseline:
        shown = {"baseline": state.baseline.phases if state.baseline else None, **shown}
    longest = max([phases.step_ms for phases in shown.values() if phases is not None] or [0.0])
    empty = {
        "baseline": "after the first full window",
        "before": "nothing changed yet",
        "now": "no step measured yet under these settings",
    }
    rows = [bar_row(name, phases, width, LABEL + 1, longest, letters, empty[name]) for name, phases in shown.items()]
    return [*rows, legend(shown, width, LABEL + 1, view.glyphs, letters)]


def log_rows(view: View, height: int, width: int) -> list[Row]:
    """The training's own newest output, newest at the bottom."""
    if height <= 0:
        return []
    said = [text for line in view.lines[-height:] if (text := clean(line)).strip()]
    if not said and view.known.output is not None:
        said = [clean(view.known.output.line)]
    lines = [row((f"{view.glyphs.said} ", "faint"), (cut(line, max(0, width - 2)), "dim")) for line in said]
    return [*([BLANK] * (height - len(lines))), *lines]

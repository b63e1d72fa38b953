"""The whole picture as a pure function: a view and a size in, exactly that many rows of exactly that width out.

Called by the app at each tick and key press, and by the tests as text. It draws whatever state it is given, the
oddest included, and never raises for one.
"""

from __future__ import annotations

from dataclasses import replace

from cockpit.history.measure import scaled_to
from cockpit.model.counts import noun
from cockpit.model.knobs import KNOBS

from .bars import bar_row, legend
from .card import card_rows
from .charts import charts
from .footer import footer_row, notice_rows
from .format import delta
from .glyphs import printable
from .gpu import gpu_rows
from .head import badge, change_row, last_told, mark_of, speed_row, title_row
from .machine import cores_row, loader_row, ranks_rows
from .now import old, phases_before, phases_now
from .output import log_rows, output_rows
from .plan import LABEL, Plan, plan_for
from .restart import restart_rows
from .rows import BLANK, Row, Run, beside, faded, fit, row, spread, width_of
from .settings import hint_rows, settings_rows
from .trials import trials_rows
from .tried import lines_of, tried_rows
from .view import View

CARD_FROM = 60
"""Columns from which a device's card has gauges that can be read."""
TRIALS_LEAST = 4
LOG_LEAST = 4
"""Rows that trials and output keep beside a device's card."""


def frame(view: View, width: int, height: int) -> list[Row]:
    """The picture: ``height`` rows of ``width`` columns each."""
    if width <= 0 or height <= 0:
        return []
    plan = plan_for(width, height, len(KNOBS))
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
    if view.reading.open:
        body = output_rows(view, height - 4, width)
    elif view.tried is not None:
        body = tried_rows(view, height - 4, width)
    elif view.restart is not None:
        body = restart_rows(view, height - 4, width)
    else:
        body = _columns(view, plan, width) if plan.right else _stacked(view, plan, width)
    body = body[: height - 4]
    body += [BLANK] * (height - 4 - len(body))
    return [*head, *body, footer_row(view, width)]


def _stacked(view: View, plan: Plan, width: int) -> list[Row]:
    """Everything below one another; trials beside the knobs."""
    left, right, tall = plan.left, width - plan.left - 2, plan.knobs - 1
    # beside the knobs is room for cards where there is some below the trials
    card = _aged(view, card_rows(view, right, tall - TRIALS_LEAST - 1)) if right >= CARD_FROM else []
    # else a line a device: an accelerator is worth more than lines that the training prints
    room = max(1, plan.log // 2) if plan.log else 0
    extra = [] if card else gpu_rows(view, width, LABEL + 1, room)
    extra += ranks_rows(view, width, LABEL + 1, room - len(extra))
    trials = trials_rows(view, right, tall - len(card) - bool(card))
    trials += [BLANK] * (tall - len(card) - len(trials)) if card else []
    panels = beside(settings_rows(view, left, plan.knobs - 2), [*trials, *card], left + 2)
    return [
        *_air(plan, 0, _aged(view, charts(view, plan, width))),
        *_aged(view, [*machine_rows(view, plan, width), *extra]),
        *_air(plan, 1, _aged(view, step_rows(view, plan, width))),
        *_air(plan, 2, [*panels, *hint_rows(view, width, plan.hint)]),
        *_air(plan, 3, log_rows(view, plan.log - len(extra), width)),
    ]


def _columns(view: View, plan: Plan, width: int) -> list[Row]:
    """A wide screen: charts, step and knobs at the left; every trial and the output at the right."""
    left, right = plan.left, plan.right
    ranks = ranks_rows(view, left, LABEL + 1, plan.gaps)
    plan = replace(plan, gaps=plan.gaps - len(ranks))  # in the place of the last blank row
    first = [
        *_air(plan, 0, _aged(view, charts(view, plan, left))),
        *_aged(view, [*machine_rows(view, plan, left), *ranks]),
        *_air(plan, 1, _aged(view, step_rows(view, plan, left))),
        *_air(plan, 2, [*settings_rows(view, left, plan.knobs - 2), *hint_rows(view, left, plan.hint)]),
    ]
    trials = min(max(10, len(view.known.ledger) + 2), (len(first) - 3) * 2 // 3)
    whole = lines_of(view, right)
    # with what there is to say of each, as long as there is room for all of it
    table = [*trials_rows(view, right, 1), *whole] if len(whole) < trials else trials_rows(view, right, trials)
    second = [BLANK, *table]
    second += [BLANK] * (trials + 2 - len(second))
    card = _aged(view, card_rows(view, right, len(first) - len(second) - LOG_LEAST - 2))
    second += [*card, BLANK] if card else []
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
    state, letters, now = view.known, view.mono, phases_now(view.known)
    measured = {"before": phases_before(state), "now": now}
    if plan.baseline:
        measured = {"baseline": state.baseline.phases if state.baseline else None, **measured}
    # batches of two sizes: every bar is as long as a step of as many samples as it has now would have been
    samples = now.samples if now is not None else None
    shown = {name: scaled_to(phases, samples) if phases else None for name, phases in measured.items()}
    longest = max([phases.step_ms for phases in shown.values() if phases is not None] or [0.0])
    empty = {
        "baseline": "after the first full window",
        "before": "no step measured before it" if state.current.change else "nothing changed yet",
        "now": "no step measured yet under these settings",
    }
    rows = [bar_row(name, phases, width, LABEL + 1, longest, letters, empty[name]) for name, phases in shown.items()]
    colours = legend(shown, width, LABEL + 1, view.glyphs, letters)
    if shown != measured and samples:
        size = f"{samples:.0f}"
        note: Row = ((f"for a step of {size} {noun(1 if size == '1' else None, 'sample')}", "dim"),)
        used = width_of(colours) - len(colours[-1][0]) + len(colours[-1][0].rstrip())
        colours = spread(colours, note, width) if used + width_of(note) < width else fit([*note], width)
    return [*rows, colours]

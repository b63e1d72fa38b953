"""What hand-offs cost the training, in words and as figures: no other figure holds their time. Pure.

Called by the fold, and by status, report, progress and screen. The share is of the run's time without its pauses, and
without the time between one process and the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cockpit.model.crash import HANDOFF_SHARE, HandoffSeen

from .pause import paused_for_s
from .spans import duration
from .state import State

LEAST = 2
"""From so many on a share is told as too large: the first may stand beside one short epoch and the imports."""


def seen(state: State, event: HandoffSeen) -> State:
    """One was written, or could not be: what was there before stays; or one was left out."""
    known = state.handoffs
    if event.spared:
        return replace(state, handoffs=replace(known, spared=True))
    spent_s, written = known.spent_s + (event.seconds or 0.0), event.reason is None
    cost = replace(known, tried=known.tried + 1, written=known.written + written, spent_s=spent_s)
    state = replace(state, handoffs=cost)
    if not written:
        return replace(state, handoff_failed=event.reason)
    steps = [step for step in (state.step, event.step) if step is not None]
    # the newest count that was heard may be older than this
    return replace(state, handoff=event, handoff_failed=None, step=max(steps, default=None))


def share(state: State, now_s: float) -> float | None:
    """The part of the run's time that went into them; None where there were none."""
    if state.started_s is None or not state.handoffs.tried:
        return None
    # a crash that nothing has followed yet: nobody has trained since
    until_s = state.ended_s or (state.crash.at_s if state.crash is not None else now_s)
    lived_s = until_s - state.started_s - paused_for_s(state, now_s) - state.idle_s
    return min(1.0, state.handoffs.spent_s / lived_s) if lived_s > 0 else None


def words(state: State, now_s: float) -> str | None:
    """How many, and what they took, beside a label that says of what; None where there were none."""
    cost, part = state.handoffs, share(state, now_s)
    if part is None:
        return None
    said = f"{cost.written} written: {_span(cost.spent_s)}, {percent(part)} of the run's time"
    if failed := cost.tried - cost.written:
        said += f", with {failed} that failed"
    return f"{said}; {spared_words()}" if cost.spared else said


def spared_words() -> str:
    """Why not every epoch ends with one."""
    return f"left out where they would take more than {100 * HANDOFF_SHARE:.0f} % of the time"


def warning(state: State, now_s: float) -> str | None:
    """That those which were asked for by number take more than anybody would have guessed; None where they do not."""
    part, told = share(state, now_s), state.session
    if part is None or told is None or not told.every or told.sparing or state.handoffs.tried < LEAST:
        return None
    if part <= HANDOFF_SHARE:
        return None
    return f"hand-offs take {percent(part)} of the run's time: --handoff-every {told.every} asks for them"


def finding(state: State, now_s: float) -> dict[str, Any] | None:
    """The warning as JSON, in the words of every finding."""
    if warning(state, now_s) is None or state.session is None:
        return None
    return {
        "kind": "handoffs_costly",
        "severity": "medium",
        "evidence": {"share": share(state, now_s), "every": state.session.every},
        "knob": None,
        "value": None,
        "predicted_gain_pct": None,
    }


def plain(state: State, now_s: float) -> Mapping[str, Any] | None:
    """``status["handoff"]``: the newest one, null where none was written; and what all took together."""
    found, cost = state.handoff, state.handoffs
    if found is None and state.handoff_failed is None:
        return None
    told = found or HandoffSeen(0.0)
    return {
        "epoch": told.epoch,
        "step": told.step,
        "bytes": told.bytes,
        "seconds": told.seconds,
        "failed": state.handoff_failed,
        "written": cost.written,
        "spent_s": cost.spent_s,
        "share": share(state, now_s),
        "spared": cost.spared,
    }


def percent(part: float) -> str:
    """``2.1 %``; no more places than count."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.1f} %"


def _span(seconds: float) -> str:
    return duration(seconds) if seconds >= 10.0 else f"{seconds:.1f} s"

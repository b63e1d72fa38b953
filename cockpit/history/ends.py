"""What becomes of the ledger when the training ends: what never came into force, and what it ended under.

Called by the fold, once. It must never call a change not applied that may have been, nor blame one for an end that
was asked for or that came by itself.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace

from cockpit.analysis.compare import NOT_COMPARABLE
from cockpit.model.counts import counted
from cockpit.model.knobs import BY_NAME
from cockpit.model.names import NOT_RESTORED

from .state import Entry, State
from .trials import PENDING, is_restart, with_entry

IN_THE_MIDDLE = "the training ended as it came into force, before it was seen there"
NOT_MEASURED = "the training ended before it was measured"
ENDED = "ended"
"""A change under which the training ended, not as it should: nobody has seen that it may stay."""


def close_begun(state: State, at_s: float) -> State:
    """The process has ended: steps may have run under what had begun, and it may be what ended them."""
    for entry in state.ledger:
        begun = entry.state == "applying" and entry.at_step is not None
        if entry.state == "settling" or begun:
            state = with_entry(state, _ended_under(state, entry, at_s))
    return state


def close_pending(state: State, at_s: float) -> State:
    """The training has ended: what was still asked for never came into force."""
    state = close_begun(state, at_s)
    for entry in state.ledger:
        if entry.state in PENDING and not (entry.state == "applying" and entry.at_step is not None):
            never = why_never(state, entry.asked)
            after = replace(entry, state="refused", state_s=at_s, verdict=NOT_COMPARABLE, reason=never)
            state = with_entry(state, after)
    return state


def _ended_under(state: State, entry: Entry, at_s: float) -> Entry:
    words = _words(state, entry)
    if words is None:
        reason = entry.reason or (IN_THE_MIDDLE if entry.state == "applying" else NOT_MEASURED)
        moved_s = at_s if entry.state == "applying" else entry.state_s
        return replace(entry, state="settling", state_s=moved_s, verdict=NOT_COMPARABLE, reason=reason)
    reason = f"{words}; {entry.reason}" if entry.reason else words
    return replace(entry, state=ENDED, state_s=at_s, verdict=NOT_COMPARABLE, reason=reason)


def _words(state: State, entry: Entry) -> str | None:
    """How the training ended and how long after the change; None where it ended as it should, or as it was told to."""
    if not state.exit_status or state.stopping_until_s is not None:
        return None
    ended = f"the training ended with status {state.exit_status}{_signal_of(state.exit_status)}"
    if is_restart(entry) and entry.state == "applying":
        return f"{ended} before a step of the new process was seen{_why_not_restored(state, entry)}"
    if state.step is None or entry.at_step is None:
        return f"{ended} after this came into force"
    steps = max(0, state.step - entry.at_step)
    made = counted(steps, "step")
    if state.leaving_s is None:  # killed: the newest count that was heard is some tenths of a second old
        return f"{ended}, {made} or a few more after this came into force"
    return f"{ended}, {made} after this came into force" if steps else f"{ended} in the first step under this"


def _why_not_restored(state: State, entry: Entry) -> str:
    """What the process itself has said, which would not begin anew."""
    told = state.session
    if state.exit_status != NOT_RESTORED or told is None or told.reason is None or told.at_s < entry.state_s:
        return ""
    return f": {told.reason}"


def _signal_of(status: int) -> str:
    """The name of the signal that 128 + n stands for."""
    try:
        return f" ({signal.Signals(status - 128).name})"
    except ValueError:
        return ""


def why_never(state: State, knobs: Iterable[str]) -> str:
    """Why none of ``knobs`` that were still asked for came into force, now that the training has ended."""
    ended = "the training ended before it could be applied"
    if state.probe == "waiting":
        likely = "no torch, python -I or -E, or PYTHONPATH replaced"
        return f"{ended}: nothing of it was seen ({state.probe_reason or likely})"
    if all(BY_NAME[name].room == "kernel" for name in knobs if name in BY_NAME):
        return ended if state.step else ended + ": no training step was seen in it"
    if not state.loaders:
        return ended + ": no DataLoader was seen in it"
    if all(loader.role != "train" for loader in state.loaders):
        return ended + ": no DataLoader was seen to train"
    return ended

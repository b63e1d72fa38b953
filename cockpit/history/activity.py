"""One word for what a run is doing, derived from the state and the time; and the badge it is shown as.

Read by status, report and screen: one table maps phase and activity to glyph and word. Never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.analysis.policy import POLICY
from cockpit.model.pause import PAUSED

from .crash import pending_restart
from .measure import windows_of
from .state import State
from .trials import entry_of, words_of

__all__ = ["BADGES", "Activity", "Badge", "activity_of", "words_of"]


@dataclass(frozen=True)
class Activity:
    """``word``: warming, compiling, measuring, steady, switching, saving, stalled (or the phase where not running),
    and for the badge alone, a few seconds long: rolled_back.

    ``since_s``: seconds in it, None where unknown. ``done``/``total``: steps, where it has a length.
    ``detail``: where it hangs, or what is switched.
    """

    word: str
    for_s: float | None = None
    done: int | None = None
    total: int | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Badge:
    """Glyph, its ASCII stand-in, and the word beside it."""

    glyph: str
    ascii: str
    word: str


BADGES = {
    "idle": Badge("○", "o", "IDLE"),
    "starting": Badge("…", "..", "STARTING"),
    "warming": Badge("◔", "~", "WARMING UP"),
    "compiling": Badge("⚙", "*", "COMPILING"),
    "measuring": Badge("◑", "%", "MEASURING"),
    "steady": Badge("●", "*", "STEADY"),
    "switching": Badge("⟳", "@", "SWITCHING"),
    "rolled_back": Badge("✖", "x", "ROLLED BACK"),
    "paused": Badge("‖", "=", "PAUSED"),
    "stalled": Badge("⚠", "!", "STALLED"),
    "lost": Badge("⌁", "?", "LOST"),
    "saving": Badge("▽", "v", "SAVING"),
    "stopping": Badge("◼", "#", "STOPPING"),
    "ended": Badge("■", "#", "ENDED"),
}

ROLLED_BACK_SHOWN_S = 10.0


def activity_of(state: State, now_s: float, *, for_badge: bool = True) -> Activity:
    """What the run is doing at ``now_s``; ``for_badge``: or that a change has just come back."""
    if state.phase != "running":
        began = {"ended": state.ended_s, "lost": state.ended_s, "starting": _starting_s(state)}
        since = {**began, "paused": state.paused_since_s}.get(state.phase)
        return Activity(state.phase, None if since is None else now_s - since)
    applying = next((entry for entry in reversed(state.ledger) if entry.state == "applying"), None)
    stalled = _leaving(state, now_s) or _stalled(state, applying is not None)
    if state.latest is not None and state.latest.doing == "compile":
        return stalled or Activity("compiling", state.latest.doing_for_s)
    if stalled:
        return stalled
    if applying:
        return Activity("switching", now_s - applying.state_s, detail=words_of(applying))
    if state.latest is not None and state.latest.doing == "save":
        return Activity("saving", state.latest.doing_for_s)
    last = state.ledger[-1] if state.ledger else None
    if for_badge and last and last.state == "rolled_back" and now_s - last.state_s < ROLLED_BACK_SHOWN_S:
        return Activity("rolled_back", now_s - last.state_s, detail=last.reason)
    # a newer change that only waits, or was refused, does not end the settling of the one in force
    ours = entry_of(state, state.current.change) if state.current.change else None
    if ours and ours.state == "settling":
        since = now_s - (ours.landed_s or ours.state_s)
        return Activity("measuring", since, ours.settled_steps, ours.settle_steps)
    return _by_windows(state, now_s)


def _starting_s(state: State) -> float | None:
    """Since when it is waited for a first step: that of a later process has nothing to do with the run's beginning."""
    if state.crash is not None:
        return state.crash.at_s
    restart = pending_restart(state)
    return state.started_s if restart is None else restart.state_s


def _by_windows(state: State, now_s: float) -> Activity:
    """Before any change: warming up until the first window is over, then measuring until changes can be judged."""
    segment = state.current
    began = segment.landed_s or state.started_s
    since = None if began is None else now_s - began
    if not segment.cold:
        return Activity("steady", since)
    found = len(windows_of(segment, segment.capacity))
    if not segment.blocks or found == 0:
        steps = sum(block.steps for block in segment.blocks)
        return Activity("warming", since, steps, 2 * POLICY.window_steps)
    if found < POLICY.windows_before:
        return Activity("measuring", since, found, POLICY.windows_before)
    return Activity("steady", since)


WHERE = {"other": "step", "loader_start": "loader start", "loader_end": "loader shutdown"}
"""Where it hangs, in the words of the badge; what is not here is its own word."""


def _stalled(state: State, applying: bool) -> Activity | None:
    """The longest of its kind, ten times over, is no patience any more. A wrong guess costs nothing: it is a word.

    What takes long by its nature has a patience of its own always: a short compilation says nothing about the next.
    Where it is not known what is usual, any has: before the first block, and while a change is ``applying``.
    """
    latest = state.latest
    # just after a change, what was usual before it must do: new workers that hang are the stall to be told
    blocks = state.current.blocks or (state.previous.blocks if state.previous else ())
    if latest is None or latest.doing_for_s is None or latest.doing == PAUSED:
        return None
    doing = latest.doing or "other"
    longest_s = (state.longest_s or {}).get(doing)
    step_s = blocks[-1].wall_s / max(1, blocks[-1].steps) if blocks else 0.0
    usual = POLICY.stalled_unknown_s if applying or not blocks else POLICY.stalled_least_s
    least_s = max(usual, POLICY.stalled_long_s.get(doing, 0.0))
    if latest.doing_for_s > max(least_s, POLICY.stalled_factor * max(step_s, longest_s or 0.0)):
        return Activity("stalled", latest.doing_for_s, detail=f"in {WHERE.get(doing, doing)}")
    return None


def _leaving(state: State, now_s: float) -> Activity | None:
    """The script is through and its process is not: pools and uploads are waited for, or something hangs."""
    for_s = now_s - state.leaving_s if state.leaving_s is not None else 0.0
    return Activity("stalled", for_s, detail="in shutdown") if for_s > POLICY.stalled_least_s else None

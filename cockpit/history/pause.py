"""A pause, folded and in words: since when, why it ended, and whether anything stands in its way. Pure.

Called by the fold; read by status, report, screen and the engine's verbs. While it lasts nothing is measured, and what
the loader's workers have made meanwhile is thrown away after it, as after a change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cockpit.analysis.policy import POLICY
from cockpit.model.counts import noun
from cockpit.model.events import Sampled
from cockpit.model.pause import ASKED, OVER, PAUSED, REFUSED, RESUMING, PauseMoved

from .knobs import training_loaders
from .ranks import several
from .state import State
from .trials import entry_of, with_entry

SEVERAL = "several ranks train together: the others would wait for the one that is paused, and give it up"
ENDED = {REFUSED: "the training ended before it took hold", OVER: "the training ended"}
LOST_WORD_S = 3.0
"""Steps so long after the word that it is paused, and the word that this is over was lost."""


def moved(state: State, event: PauseMoved) -> State:
    """The newest word on a pause."""
    known = state.pause
    same = known is not None and known.id == event.id
    if same and known is not None and _ORDER[event.state] < _ORDER[known.state]:
        return state  # told once more to an engine that is new, or overtaken by what was said meanwhile
    if event.state == PAUSED:
        since = event.at_s if state.paused_since_s is None else state.paused_since_s
        phase = "paused" if state.phase == "running" else state.phase
        # the steps since the last sample, which an engine that dies just then would not have written down
        step = max(event.step or 0, state.step or 0)
        state = replace(state, phase=phase, paused_since_s=since, step=step)
    elif event.state in (OVER, REFUSED):
        state = over(state, event.at_s)
    # who is told twice that it is over keeps the first reason
    return state if same and known is not None and known.state in (OVER, REFUSED) else replace(state, pause=event)


_ORDER = {ASKED: 0, PAUSED: 1, RESUMING: 2, OVER: 3, REFUSED: 3}


def over(state: State, at_s: float) -> State:
    """It goes on, or has ended: the next steps are fed from queues that had time to fill, and are nobody's measure."""
    if state.paused_since_s is None:
        return state
    spent_s = max(0.0, at_s - state.paused_since_s)
    state = replace(state, paused_s=state.paused_s + spent_s, paused_since_s=None)
    state = replace(state, phase="running") if state.phase == "paused" else state
    ahead = max((loader.capacity for loader in training_loaders(state)), default=0)
    discard = max(ahead + POLICY.discard_extra, POLICY.discard_least)
    segment = state.current
    more = max(0, discard - segment.discard_steps)
    state = replace(state, current=replace(segment, discard_steps=segment.discard_steps + more))
    entry = entry_of(state, segment.change)
    if entry is not None and entry.state == "settling":
        state = with_entry(state, replace(entry, settle_steps=entry.settle_steps + more))
    return state


def closed(state: State, at_s: float) -> State:
    """The training has ended."""
    state, found = over(state, at_s), state.pause
    if found is None or found.state in (OVER, REFUSED):
        return state
    word = REFUSED if found.state == ASKED else OVER
    return replace(state, pause=replace(found, state=word, reason=ENDED[word]))


def seen(state: State, event: Sampled) -> State:
    """Whoever makes steps is not paused."""
    since = state.paused_since_s
    if since is None or not event.steps or event.doing == PAUSED or event.at_s - since < LOST_WORD_S:
        return state
    state = over(state, event.at_s)
    return replace(state, pause=replace(state.pause, state=OVER)) if state.pause else state


def why_not(state: State) -> str | None:
    """Why a pause cannot be asked for now, in one sentence; None: it can."""
    if state.phase in ("ended", "lost"):
        return f"{state.run} has ended: there is nothing left to pause"
    if state.phase == "stopping":
        return f"{state.run} is stopping: it cannot be paused any more"
    if state.phase == "paused":
        return f"{state.run} is paused already: cockpit resume {state.run}"
    if several(state):
        return f"{state.run} cannot be paused: {SEVERAL}"
    off = next((rank.off["pause"] for rank in state.ranks if rank.off and "pause" in rank.off), None)
    if off is not None:
        return f"{state.run} cannot be paused: the probe's own part 'pause' has failed: {off}"
    if not state.step:
        return f"{state.run} cannot be paused yet: no training step has ended in it"
    return None


def is_asked(state: State) -> bool:
    """Whether one was asked for that has not taken hold yet."""
    return state.pause is not None and state.pause.state == ASKED and state.phase == "running"


def paused_for_s(state: State, now_s: float) -> float:
    """Seconds of all pauses so far, the one under way with them."""
    since = state.paused_since_s
    return state.paused_s + (max(0.0, now_s - since) if since is not None else 0.0)


def plain(state: State) -> dict[str, Any] | None:
    """``status["pause"]``: the newest pause, null where none was asked for."""
    found = state.pause
    return None if found is None else {"state": found.state, "at_step": found.step, "reason": found.reason}


def words(state: State) -> str | None:
    """The newest pause in a few words, where there is something to say."""
    found = state.pause
    if found is None or (found.state == OVER and found.reason is None):
        return None
    heard = "it pauses when the step under way has ended"
    unheard = "the training is not heard just now: it pauses a step after it is heard again"
    steps = f"{found.step} {noun(found.step, 'step')}"
    told = {
        ASKED: found.reason or (unheard if state.probe == "lost" else heard),
        PAUSED: f"paused after {steps}: memory and workers stay; cockpit resume {state.run}",
        RESUMING: "it is told to go on",
        OVER: f"the pause is over: {found.reason}",
        REFUSED: f"not paused: {found.reason}",
    }
    return told.get(found.state)


def lands_later(state: State) -> str | None:
    """What whoever asks for a change of a paused training is told."""
    if state.phase != "paused":
        return None
    return f"{state.run} is paused: this lands when it goes on (cockpit resume {state.run})"

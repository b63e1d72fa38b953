"""How far a hot restart has come, from its asking to its outcome: a stage and a sentence, from the state alone. Pure.

Read by the screen. The ledger knows fewer words than people want here: what it calls queued is first a new process that
gets ready, and then one that waits for the end of the epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .boundary import NO_END, boundary_in_s, is_out_of_sight
from .state import Entry, State
from .trials import is_restart

PREPARING, READY, HANDING_OVER, FIRST_STEP = "preparing", "ready", "handing over", "first step"
SETTLING, KEPT = "settling", "kept"
STAGES = ("asked", PREPARING, READY, HANDING_OVER, FIRST_STEP, SETTLING, KEPT)
"""In their order; whatever else is the word of the ledger, with its reason."""
THE_ONE_BEFORE = "the process before"
"""Begins what is known of the one that has handed over, in the note of a restart."""
WAITING = "waiting"
"""For the next checkpoint of a script that resumes by itself, or for the next try after a crash."""


@dataclass(frozen=True)
class Stage:
    """``word``: of ``STAGES``, ``WAITING``, or how it came to nothing. ``words``: a sentence. ``entry``: its line of
    the ledger. ``pending``: it is under way; ``can_drop``: it can still be called off."""

    word: str
    words: str
    entry: Entry
    pending: bool = False
    can_drop: bool = False


def newest(state: State) -> Stage | None:
    """The newest restart of the run; None: there was none."""
    entry = next((entry for entry in reversed(state.ledger) if is_restart(entry)), None)
    return None if entry is None else _stage_of(state, entry)


def under_way(state: State) -> Stage | None:
    """The restart that is under way while the training runs, None where there is none."""
    found = newest(state)
    return found if found is not None and found.pending and state.phase in ("running", "paused", "stopping") else None


def is_between(state: State) -> bool:
    """Whether one process has handed over and the next has not made a step: silence is no loss then."""
    found = under_way(state)
    return found is not None and found.word == FIRST_STEP


def _stage_of(state: State, entry: Entry) -> Stage:
    if entry.state == "queued":
        word, words = _before_its_turn(state, entry)
        return Stage(word, words, entry, True, True)
    if entry.state == "applying":
        step = "" if entry.at_step is None else f" from step {entry.at_step}"
        known = f" ({entry.note})" if entry.note is not None and entry.note.startswith(THE_ONE_BEFORE) else ""
        return Stage(FIRST_STEP, f"the new process goes on{step}: its first step is awaited{known}", entry, True)
    if entry.state == SETTLING:
        return Stage(
            SETTLING, f"in force: {entry.settled_steps} of {entry.settle_steps} steps until it is judged", entry
        )
    word = entry.state.replace("_", " ")
    return Stage(word, entry.reason or ("in force" if entry.state == KEPT else word), entry)


def _before_its_turn(state: State, entry: Entry) -> tuple[str, str]:
    if entry.origin == "crash" or not hands_itself_over(state):
        return WAITING, entry.note or "it waits for its turn"
    if entry.note is None:
        return PREPARING, "a new process gets ready; the training goes on meanwhile"
    if state.latest is not None and state.latest.doing == "save":
        return HANDING_OVER, "the training writes its hand-off and checks it"
    return READY, f"the new process is ready; the training hands over {hands_over(state)}"


def hands_itself_over(state: State) -> bool:
    """Whether the script has opted in; where the engine that was here before told nothing of it, it has."""
    return state.session is None or bool(state.session.names)


def hands_over(state: State) -> str:
    """When the training hands over, in words that end a sentence."""
    if state.phase == "paused":
        return "at the end of its epoch, once it goes on"
    if is_out_of_sight(state):
        return f"when its epoch ends ({NO_END})"
    in_s = boundary_in_s(state)
    if in_s is None or not math.isfinite(in_s):
        return "when its epoch ends"
    minutes, seconds = divmod(round(in_s), 60)
    return f"when its epoch ends, in {minutes}:{seconds:02d}"

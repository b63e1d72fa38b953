"""What every verb does first: find the run that is meant, and reach its engine or, after its end, its journal.

The only file of this room that knows the engine's functions. A verb that only looks starts nothing; one that asks
brings a lost engine back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cockpit.engine.rundir import RunDir as Run
from cockpit.engine.runs import Listed, is_over, list_runs, look, resolve
from cockpit.engine.start import START_S_AT_MOST, answers, ensure_engine
from cockpit.history.journal import read_state
from cockpit.history.link import request, snapshot
from cockpit.history.state import State
from cockpit.model.errors import CockpitError, LinkLost, UsageError

from .verbs import Verb
from .words import Option, Words

__all__ = [
    "STATE_DIR",
    "Listed",
    "Run",
    "all_runs",
    "ask",
    "ask_again",
    "find",
    "has_ended",
    "name_in",
    "recorded_state",
    "revive",
    "revive_to_show",
]

LOOK_S = 0.02
STATE_DIR = Option("--state-dir", "where runs are kept (default ~/.local/state/cockpit)", ("DIR",))


def name_in(verb: Verb, words: Words) -> str | None:
    """The RUN of a verb that takes nothing else; raises UsageError for more words."""
    if len(words.rest) > 1:
        raise UsageError(f"{verb.name} takes one RUN, not {' '.join(words.rest)}")
    return words.rest[0] if words.rest else None


def state_dir(words: Words) -> Path | None:
    """The folder given with ``--state-dir``."""
    given = words.one("--state-dir")
    return Path(given) if given else None


def find(name: str | None, words: Words) -> Run:
    """The run that is meant; raises NoSuchRun."""
    return resolve(name, state_dir(words))


def all_runs(words: Words) -> Sequence[Listed]:
    """Every run there is, the newest first."""
    return list_runs(state_dir(words))


def has_ended(run: Run) -> bool:
    """Whether the run is over and its journal says so; cheap enough to be asked ten times a second."""
    return look(run).state in ("ended", "lost") and is_over(run)


def revive(run: Run) -> bool:
    """Have an engine for the run, unless it is over; whether there is one.

    A run that is just starting has one on its way, which alone knows what to start: another must not come first.
    """
    until_s = time.monotonic() + START_S_AT_MOST
    while look(run).state == "starting" and not answers(run) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    return ensure_engine(run)


def revive_to_show(run: Run) -> None:
    """Have an engine for a screen, the run over or not: who comes back in the morning wants to see it."""
    if not revive(run):
        ensure_engine(run, to_show=True)


def recorded_state(run: Run) -> State:
    """The state as the journal alone tells it; raises CockpitError where nothing is recorded."""
    state = read_state(run.data)
    if state is None:
        raise CockpitError(f"{run.name} has no journal to read ({run.data})")
    return state


def state_of(run: Run) -> State:
    """The newest state: the engine's while there is one to be had, else the journal's."""
    for _ in range(2):
        if not revive(run):
            break
        try:
            return snapshot(run.socket)
        except LinkLost:
            continue  # it left between two questions: look once more whether the run is over
    return recorded_state(run)


def ask_again(run: Run, verb: str, **args: Any) -> dict[str, Any]:
    """Ask about a run that is over: an engine is had for it all the same. Raises CockpitError with its reason."""
    ensure_engine(run, to_show=True)
    try:
        return request(run.socket, verb, **args)
    except LinkLost:
        ensure_engine(run, to_show=True)  # it was just leaving
        return request(run.socket, verb, **args)


def ask(run: Run, verb: str, **args: Any) -> dict[str, Any]:
    """Ask the run's engine, bringing it back first where it was lost; raises CockpitError with its reason."""
    if not revive(run):
        raise CockpitError(f"{run.name} has ended: nothing can be asked of it any more")
    return request(run.socket, verb, **args)

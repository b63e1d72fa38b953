"""``cockpit pause`` and ``cockpit resume``: the training stands still after the step under way, and goes on again.

Both stay a moment for the training's own answer: it may refuse, or be in a validation that has to end first.
"""

from __future__ import annotations

import json
import sys
import time

from cockpit.history.pause import words as pause_words
from cockpit.history.state import State
from cockpit.history.status import rounded, status_of
from cockpit.model.errors import CockpitError
from cockpit.model.pause import OVER, REFUSED

from .runs import STATE_DIR, Run, ask, find, has_ended, name_in, state_of
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--wait", "pause: stay until it is paused, however long the step takes"),
    Option("--json", "state and pause as one JSON object"),
    STATE_DIR,
)
ANSWER_S, LOOK_S = 3.0, 0.1


def call(verb: Verb, words: Words) -> int:
    """Ask, wait for the answer, and say it; 1 where it was refused."""
    run = find(name_in(verb, words), words)
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended: there is nothing left to {verb.name}")
    name = str(ask(run, verb.name)["id"])
    pauses = verb.name == "pause"
    state = _answer(run, name, pauses=pauses, wait=pauses and words.has("--wait"))
    found = state.pause if state.pause is not None and state.pause.id == name else None
    refused = pauses and found is not None and found.state in (OVER, REFUSED)
    if words.has("--json"):
        told = status_of(state, time.time())
        print(json.dumps(rounded({key: told[key] for key in ("run", "state", "step", "pause", "paused_s")})))
    else:
        told_words = pause_words(state) if pauses or state.phase == "paused" else None
        line = f"{run.name}: {told_words or ('it goes on' if state.phase == 'running' else state.phase)}"
        print(line, file=sys.stderr if refused else sys.stdout)
    return 1 if refused else 0


def _answer(run: Run, name: str, *, pauses: bool, wait: bool) -> State:
    """The state once the training has answered, or when that takes too long."""
    until_s = time.monotonic() + ANSWER_S
    while True:
        state = state_of(run)
        found = state.pause
        over = found is None or found.id != name or found.state in (OVER, REFUSED) or state.phase in ("ended", "lost")
        if over or (pauses and state.phase == "paused") or (not wait and time.monotonic() > until_s):
            return state
        time.sleep(LOOK_S)

"""The verbs that only ask the engine for something: undo, redo, drop, baseline. One table, one function."""

from __future__ import annotations

import json

from .runs import STATE_DIR, ask, find, name_in
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--json", "the engine's answer as one JSON object"), STATE_DIR)

DONE = {
    "undo": "asked: the newest change is taken back",
    "redo": "asked: what was undone is applied again",
    "drop": "asked: what is queued is withdrawn",
    "baseline": "the baseline is now what runs",
}


def call(verb: Verb, words: Words) -> int:
    """Ask, and say in a few words what will happen; raises CockpitError with the engine's reason."""
    run = find(name_in(verb, words), words)
    result = ask(run, verb.name)
    print(json.dumps(result) if words.has("--json") else f"{run.name}: {DONE[verb.name]}")
    return 0

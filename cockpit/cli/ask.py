"""The verbs that only ask the engine for something: undo, redo, drop, baseline. One table, one function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import show_value

from .answers import say_what_is_known
from .runs import STATE_DIR, ask, find, has_ended, name_in
from .verbs import Verb
from .waiting import wait_for
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--json", "the engine's answer as one JSON object"),
    Option("--wait", "undo, redo: return when it is kept (status 0) or not (1), with its line as JSON"),
    STATE_DIR,
)
CHANGES = ("undo", "redo")
"""Those that ask for a change, with all that may become of one."""

DONE = {
    "undo": "asked: {what} is taken back{asked}",
    "redo": "asked: {what} is applied again",
    "drop": "asked: what is queued is withdrawn",
    "baseline": "the baseline is now what runs",
}


def call(verb: Verb, words: Words) -> int:
    """Ask, and say in a few words what will happen; raises CockpitError with the engine's reason."""
    run = find(name_in(verb, words), words)
    if words.has("--wait"):
        if verb.name not in CHANGES:
            raise UsageError(f"{verb.name} is done at once: there is nothing to --wait for")
        if has_ended(run):
            raise CockpitError(f"{run.name} has ended: nothing can be changed any more")
        return wait_for(run, [(verb.name, {})])
    result = ask(run, verb.name)
    if words.has("--json"):
        print(json.dumps(result))
    else:
        print(f"{run.name}: {told(verb.name, result)}")
    return say_what_is_known(run, [result["id"]]) if verb.name in CHANGES else 0


def told(verb: str, result: Mapping[str, Any]) -> str:
    """What will happen, as the engine has answered."""
    asked = " ".join(f"{name}={show_value(value)}" for name, value in result.get("asked", {}).items())
    return DONE[verb].format(what=result.get("what", "a change"), asked=f", to {asked}" if asked else "")

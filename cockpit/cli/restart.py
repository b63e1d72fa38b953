"""``cockpit restart``: a new process goes on with the training, with the environment that was asked for.

The training hands over at the end of its epoch, or is stopped after its next checkpoint (``--resume-with``); until then
nothing has happened to it, and ``cockpit drop`` calls it off. A run that has ended goes on from what it left.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from cockpit.model.environment import goes_along
from cockpit.model.errors import UsageError

from .runs import STATE_DIR, ask, ask_again, find, has_ended, name_in
from .verbs import Verb
from .waiting import wait_for, wait_for_ids
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--env", "set this environment variable in the new process (repeatable)", ("NAME=VALUE",), many=True),
    Option("--unset", "take this environment variable away (repeatable)", ("NAME",), many=True),
    Option("--now", "with --resume-with: stop it at once, not after its next checkpoint"),
    Option("--wait", "return when it is kept (status 0) or not (1); prints the ledger's line as JSON"),
    Option("--json", "the engine's answer as one JSON object"),
    STATE_DIR,
)


def call(verb: Verb, words: Words) -> int:
    """Ask, and say when it happens; raises CockpitError with the reason why a restart would lose something."""
    run = find(name_in(verb, words), words)
    env = environment(words)
    args: dict[str, Any] = {"env": env, "now": words.has("--now"), "environ": dict(os.environ)}
    if has_ended(run):
        answer = ask_again(run, "restart", **args)
        if words.has("--wait"):
            return wait_for_ids(run, [str(answer["id"])])
    elif words.has("--wait"):
        return wait_for(run, [("restart", args)])
    else:
        answer = ask(run, "restart", **args)
    if words.has("--json"):
        print(json.dumps(answer))
        return 0
    print(f"{run.name}: {words_of(answer)}")
    if answer.get("note") and "begun" not in answer:
        print(f"cockpit: {answer['note']}", file=sys.stderr)
    return 0


def words_of(answer: Mapping[str, Any]) -> str:
    """What is about to happen: ``begun`` is there where no process that hands over is waited for."""
    if "begun" not in answer:
        with_it = f": {goes_along(answer['names'])}" if answer.get("names") else ""
        return f"a new process gets ready; the training hands over to it at the next epoch boundary{with_it}"
    return f"a new process {answer['note']}" if answer["begun"] else str(answer["note"])


def environment(words: Words) -> dict[str, str | None]:
    """What ``--env`` and ``--unset`` ask for; None takes a variable away. Raises UsageError."""
    found: dict[str, str | None] = {}
    for (pair,) in words.all("--env"):
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--env takes NAME=VALUE, not {pair!r}: to take a variable away, say --unset {name}")
        found[name] = value
    for (name,) in words.all("--unset"):
        if name in found:
            raise UsageError(f"{name} cannot be set and unset at once")
        found[name] = None
    return found

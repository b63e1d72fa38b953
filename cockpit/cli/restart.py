"""``cockpit restart``: a new process goes on with the training, with the environment that was asked for.

The training hands over at the end of its epoch; until then nothing has happened to it, and ``cockpit drop`` calls it
off.
"""

from __future__ import annotations

import json
import sys

from cockpit.model.errors import CockpitError, UsageError

from .runs import STATE_DIR, ask, find, has_ended, name_in
from .verbs import Verb
from .waiting import wait_for
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--env", "set this environment variable in the new process (repeatable)", ("NAME=VALUE",), many=True),
    Option("--unset", "take this environment variable away (repeatable)", ("NAME",), many=True),
    Option("--wait", "return when it is kept (status 0) or not (1); prints the ledger's line as JSON"),
    Option("--json", "the engine's answer as one JSON object"),
    STATE_DIR,
)


def call(verb: Verb, words: Words) -> int:
    """Ask, and say when it happens; raises CockpitError with the reason why a restart would lose something."""
    run = find(name_in(verb, words), words)
    env = environment(words)
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended: nothing can be restarted; start it again with cockpit run")
    if words.has("--wait"):
        return wait_for(run, [("restart", {"env": env})])
    answer = ask(run, "restart", env=env)
    if words.has("--json"):
        print(json.dumps(answer))
        return 0
    print(f"{run.name}: a new process gets ready; the training hands over to it at the next epoch boundary")
    if answer.get("note"):
        print(f"cockpit: {answer['note']}", file=sys.stderr)
    return 0


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

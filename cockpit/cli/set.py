"""``cockpit set``: ask a running training for a change, and with ``--wait`` stay until it is kept or not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cockpit.config.assign import Wishes, wishes
from cockpit.config.setup import words_of
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import BATCH_KNOBS, Value

from .answers import say_what_is_known
from .runs import STATE_DIR, ask, find, has_ended
from .verbs import Verb
from .waiting import ids_of, wait_for
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--now", "at once, in the middle of the epoch"),
    Option("--wait", "return when it is kept (status 0) or not (1); prints the ledger's line as JSON"),
    Option("--json", "the engine's answer as one JSON object"),
    STATE_DIR,
)

BOUNDARY = "at the next epoch boundary"


def call(verb: Verb, words: Words) -> int:
    """Ask for every KNOB=VALUE as one change (one a loader where loaders are named)."""
    del verb
    rest = list(words.rest)
    name = rest.pop(0) if rest and "=" not in rest[0] else None
    if not rest:
        raise UsageError("set needs KNOB=VALUE, as for example num_workers=4")
    wanted = wishes(rest)
    run = find(name, words)
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended: nothing can be changed any more")
    commands = _commands(wanted, now=words.has("--now"))
    if words.has("--wait"):
        return wait_for(run, [("set", args) for args in commands])
    answers = [ask(run, "set", **args) for args in commands]
    if words.has("--json"):
        print("\n".join(json.dumps(answer) for answer in answers))
    else:
        for args, answer in zip(commands, answers, strict=True):
            print(f"{run.name}: {_answered(args, answer)}")
    ids = [each for args, answer in zip(commands, answers, strict=True) for each in ids_of(answer, args) if each]
    return say_what_is_known(run, ids)


def _answered(args: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """What was asked for with it and when it comes, in the engine's words: a change takes the queue along."""
    target, knobs = args["loader"], args["knobs"]
    if answer.get("id") is None:
        return f"{_setting(target, knobs)} in force already: what was queued is withdrawn"
    asked, now = answer.get("asked", knobs), answer.get("now", args["now"])
    queued = [name for name in asked if name not in knobs]
    taken = f" ({', '.join(queued)} {'was' if len(queued) == 1 else 'were'} queued)" if queued else ""
    at_once = now and any(name not in BATCH_KNOBS for name in asked)
    told = f"asked for {_setting(target, asked)}, {'at once' if at_once else BOUNDARY}{taken}"
    later = answer.get("later")
    return f"{told}; {_setting(target, later['asked'])} {BOUNDARY}" if later else told


def _setting(target: str | None, knobs: Mapping[str, Value]) -> str:
    wanted = Wishes(knobs={}, loaders={target: dict(knobs)}) if target else Wishes(knobs=dict(knobs), loaders={})
    return " ".join(words_of(wanted))


def _commands(wanted: Wishes, *, now: bool) -> list[dict[str, Any]]:
    """Arguments of the engine's ``set``, one a target."""
    targets: list[tuple[str | None, Mapping[str, Value]]] = [(None, wanted.knobs)] if wanted.knobs else []
    targets += list(wanted.loaders.items())
    return [{"knobs": dict(knobs), "now": now, "loader": loader} for loader, knobs in targets]

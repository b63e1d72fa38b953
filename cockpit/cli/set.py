"""``cockpit set``: ask a running training for a change, and with ``--wait`` stay until it is kept or not."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from cockpit.config.assign import Wishes, wishes
from cockpit.config.setup import words_of
from cockpit.history.boundary import NO_END, is_out_of_sight
from cockpit.history.knobs import is_answered
from cockpit.history.measure import phases_of
from cockpit.history.pause import lands_later
from cockpit.history.state import State
from cockpit.history.status import RECENT_BLOCKS, found_of
from cockpit.history.trials import entry_of
from cockpit.history.trials import words_of as change_words
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import BATCH_KNOBS, Value

from .runs import STATE_DIR, Run, ask, find, has_ended, state_of
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
PATIENCE_S, LONGEST_S, LOOK_S = 2.0, 60.0, 0.1


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
    refused, notes = _to_be_known(run, ids)
    paused = lands_later(state_of(run))
    notes += [paused] if paused else []
    print("".join(f"cockpit: {line}\n" for line in (*refused, *notes)), end="", file=sys.stderr)
    return 1 if refused else 0


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


def _to_be_known(run: Run, ids: list[str]) -> tuple[list[str], list[str]]:
    """What was refused at once, and what the values asked for will do, as the training's rows tell it."""
    began_s = time.monotonic()
    while True:
        state = state_of(run)
        entries = [entry for change in ids if (entry := entry_of(state, change))]
        found = {name: one for entry in entries for name, one in found_of(state, entry).items()}
        notes = {name: told for name, one in found.items() if (told := _join(one["reason"], one["note"]))}
        if any(each.state == "queued" and not each.now for each in entries) and is_out_of_sight(state):
            notes["when"] = f"{NO_END}: --now does not wait for one"
        for entry in entries:
            # rows fall silent once the change has landed
            if entry.note is not None and not any(entry.note in told for told in notes.values()):
                notes[change_words(entry)] = entry.note
        # what a change would need or do is worked out by the training itself, at its next beat
        late = [entry for entry in entries if entry.state == "queued" and not is_answered(state, entry)]
        if not late or time.monotonic() > began_s + patience_s(state):
            over = [entry for entry in entries if entry.state == "refused"]
            refused = [f"{change_words(entry)}: refused, {entry.reason}" for entry in over]
            return refused, [f"{name}: {note}" for name, note in notes.items()]
        time.sleep(LOOK_S)


def patience_s(state: State) -> float:
    """How long an answer may take: what the model cannot have is refused where a step ends, and steps may be long."""
    phases = phases_of(state.current.blocks[-RECENT_BLOCKS:])
    return min(PATIENCE_S + (2.0 * phases.step_ms / 1000.0 if phases else 0.0), LONGEST_S)


def _join(*told: str | None) -> str:
    return "; ".join(words for words in told if words)


def _commands(wanted: Wishes, *, now: bool) -> list[dict[str, Any]]:
    """Arguments of the engine's ``set``, one a target."""
    targets: list[tuple[str | None, Mapping[str, Value]]] = [(None, wanted.knobs)] if wanted.knobs else []
    targets += list(wanted.loaders.items())
    return [{"knobs": dict(knobs), "now": now, "loader": loader} for loader, knobs in targets]

"""``cockpit set``: ask a running training for a change, and with ``--wait`` stay until it is kept or not."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from cockpit.config.assign import Wishes, wishes
from cockpit.config.setup import words_of
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import BATCH_KNOBS, Value
from cockpit.session.knobs import is_answered
from cockpit.session.state import State
from cockpit.session.status import found_of, ledger_line, rounded
from cockpit.session.trials import entry_of
from cockpit.session.trials import words_of as change_words

from .follow import Following
from .runs import STATE_DIR, Run, ask, find, has_ended, state_of
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--now", "at once, in the middle of the epoch"),
    Option("--wait", "return when it is kept (status 0) or not (1); prints the ledger's line as JSON"),
    Option("--json", "the engine's answer as one JSON object"),
    STATE_DIR,
)

PATIENCE_S, LOOK_S = 2.0, 0.1
OVER = ("kept", "rolled_back", "refused", "reverted")


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
    if words.has("--wait"):
        lines = asyncio.run(_ask_and_wait(run, wanted, now=words.has("--now")))
        print("\n".join(json.dumps(line) for line in lines))
        return 0 if all(line["outcome"] == "kept" for line in lines) else 1
    answers = [ask(run, "set", **args) for args in _commands(wanted, now=words.has("--now"))]
    if words.has("--json"):
        print("\n".join(json.dumps(answer) for answer in answers))
    else:
        later = any(knob in BATCH_KNOBS for args in _commands(wanted, now=False) for knob in args["knobs"])
        when = "at once" if words.has("--now") and not later else "at the next epoch boundary"
        print(f"{run.name}: asked for {' '.join(words_of(wanted))}, {when}")
        ids = [change for answer in answers if (change := answer.get("id"))]
        refused, notes = _to_be_known(run, ids)
        print("".join(f"cockpit: {line}\n" for line in (*refused, *notes)), end="", file=sys.stderr)
        return 1 if refused else 0
    return 0


def _to_be_known(run: Run, ids: list[str]) -> tuple[list[str], list[str]]:
    """What was refused at once, and what the values asked for will do, as the training's rows tell it."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        state = state_of(run)
        entries = [entry for change in ids if (entry := entry_of(state, change))]
        found = {name: one for entry in entries for name, one in found_of(state, entry).items()}
        notes = {name: one["note"] for name, one in found.items() if one["note"]}
        # what a batch size does is worked out by the training itself, at its next beat
        late = [entry for entry in entries if entry.state == "queued" and not is_answered(state, entry)]
        if not late or time.monotonic() > until_s:
            over = [entry for entry in entries if entry.state == "refused"]
            refused = [f"{change_words(entry)}: refused, {entry.reason}" for entry in over]
            return refused, [f"{name}: {note}" for name, note in notes.items()]
        time.sleep(LOOK_S)


def _commands(wanted: Wishes, *, now: bool) -> list[dict[str, Any]]:
    """Arguments of the engine's ``set``, one a target."""
    targets: list[tuple[str | None, Mapping[str, Value]]] = [(None, wanted.knobs)] if wanted.knobs else []
    targets += list(wanted.loaders.items())
    return [{"knobs": dict(knobs), "now": now, "loader": loader} for loader, knobs in targets]


async def _ask_and_wait(run: Run, wanted: Wishes, *, now: bool) -> list[dict[str, Any]]:
    following, ids = Following(run), list[str]()
    last: dict[str, dict[str, Any]] = {}
    try:
        async for state in following.states():
            if not ids:
                if following.link is None:
                    raise CockpitError(f"{run.name} has ended: nothing can be changed any more")
                for args in _commands(wanted, now=now):
                    ids.append((await following.link.command("set", **args))["id"])
                continue
            if _all_over(state, ids, last):
                break
    finally:
        await following.close()
    return [last.get(change) or _gone(change, "the training ended first") for change in ids]


def _all_over(state: State, ids: list[str], last: dict[str, dict[str, Any]]) -> bool:
    """Whether every change has an outcome; remembers the newest line of each in ``last``."""
    over = True
    for change in ids:
        entry = entry_of(state, change)
        if entry is not None:
            last[change] = rounded({**ledger_line(entry), "knobs": found_of(state, entry)})
            over = over and entry.state in OVER
        elif change in last:
            # it was there and is not any more: withdrawn, or taken into a later change of the same target
            last[change] = {
                **last[change],
                "state": "dropped",
                "reason": "withdrawn, or taken into a later change",
            }
        else:
            over = False
    return over


def _gone(change: str, reason: str) -> dict[str, Any]:
    return {"id": change, "outcome": None, "reason": reason}

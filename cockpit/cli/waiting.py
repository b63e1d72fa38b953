"""Ask for changes and stay until each is kept or not, saying each move on the way. Used by ``set``, ``undo``, ``redo``.

A lost engine is asked again, by the following. It must never call a change kept that the ledger does not.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cockpit.history.pause import lands_later
from cockpit.history.state import Entry, State
from cockpit.history.status import found_of, is_so_without, ledger_line, rounded
from cockpit.history.trials import entry_of
from cockpit.history.trials import words_of as change_words
from cockpit.model.errors import CockpitError

from .answers import when_words
from .follow import Following
from .progress import MOVES
from .runs import Run

ALREADY = "in force already: what was queued is withdrawn"
NOTHING_TO_DO = "in force already"
OVER = ("kept", "rolled_back", "refused", "reverted", "ended")

WITHDRAWN = "withdrawn, taken into a later change, or in force already"

Asking = tuple[str, Mapping[str, Any]]
"""A verb of the engine's with its arguments; it answers with the ``id`` of a change."""


def wait_for(run: Run, asking: Sequence[Asking]) -> int:
    """Ask, wait, and print each change's line of the ledger as JSON; 0 where all were kept, else 1."""
    lines = asyncio.run(_ask_and_wait(run, asking))
    print("\n".join(json.dumps(line) for line in lines))
    return 0 if all(line["outcome"] == "kept" for line in lines) else 1


def wait_for_ids(run: Run, ids: Sequence[str]) -> int:
    """The same for changes that were asked for already."""
    lines = asyncio.run(_ask_and_wait(run, (), ids))
    print("\n".join(json.dumps(line) for line in lines))
    return 0 if all(line["outcome"] == "kept" for line in lines) else 1


async def _ask_and_wait(run: Run, asking: Sequence[Asking], asked: Sequence[str] = ()) -> list[dict[str, Any]]:
    following, ids = Following(run), list[str | None](asked)
    last = {change: _gone(change, "not heard of any more") for change in ids}
    entries: dict[str, Entry] = {}
    told = set[str]()
    try:
        async for state in following.states():
            if not ids:
                if following.link is None:
                    raise CockpitError(f"{run.name} has ended: nothing can be changed any more")
                for verb, args in asking:
                    for change in ids_of(await following.link.command(verb, **args), args):
                        ids.append(change)
                        # once answered it stands in the ledger; where it does not, somebody has withdrawn it since
                        last[change] = _gone(change, "not heard of any more")
                continue
            waiting = [entry for change in ids if change and (entry := entry_of(state, change))]
            later = {words for words in (lands_later(state), when_words(state, waiting)) if words}
            for words in sorted(later - told):
                print(f"cockpit: {words}", file=sys.stderr)
            told = later
            if _all_over(state, ids, last, entries):
                break
    finally:
        await following.close()
    return [last[change] for change in ids]


def ids_of(answer: Mapping[str, Any], args: Mapping[str, Any]) -> list[str | None]:
    """The changes that an answer of the engine's names, of those that were asked for."""
    later = answer.get("later")
    parts = [later["id"]] if later and not set(later["asked"]).isdisjoint(args.get("knobs", ())) else []
    return [answer["id"], *parts]


def _all_over(
    state: State, ids: list[str | None], last: dict[str | None, dict[str, Any]], entries: dict[str, Entry]
) -> bool:
    """Whether every change has an outcome; remembers the newest line of each in ``last``, its entry in ``entries``."""
    over = True
    for change in ids:
        if change is None:  # what was asked for is in force, and what would have changed it is withdrawn
            last[change] = {"id": None, "outcome": "kept", "reason": ALREADY}
            continue
        entry = entry_of(state, change)
        if entry is not None:
            line = rounded({**ledger_line(entry), "knobs": found_of(state, entry)})
            _say(entry, line, last.get(change))
            last[change], entries[change] = line, entry
            over = over and entry.state in OVER
        elif change in entries and is_so_without(state, entries[change]):
            last[change] = {**last[change], "state": "dropped", "outcome": "kept", "reason": NOTHING_TO_DO}
        else:
            # it was there and is not any more
            last[change] = {**last[change], "state": "dropped", "reason": WITHDRAWN}
    return over


def _say(entry: Entry, line: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    """On stderr, once a move; the outcome itself is what stdout is for."""
    words = change_words(entry)
    if line["note"] and line["note"] != (before or {}).get("note"):
        print(f"cockpit: {words}: {line['note']}", file=sys.stderr)
    if entry.state not in OVER and entry.state != (before or {}).get("state"):
        print(f"cockpit: {words}: {MOVES.get(entry.state, entry.state)}", file=sys.stderr)


def _gone(change: str | None, reason: str) -> dict[str, Any]:
    return {"id": change, "outcome": None, "note": None, "reason": reason}

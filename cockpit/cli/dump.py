"""``cockpit dump``: where the threads of a training and its loader workers stand just now, without stopping them."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from cockpit.history.stacks import ANSWER_S, Dump, dump_of, lines_of
from cockpit.model.errors import CockpitError

from .follow import Following
from .runs import STATE_DIR, Run, find, has_ended, name_in
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--json", "one JSON object"), STATE_DIR)


def call(verb: Verb, words: Words) -> int:
    """Ask, wait a few seconds for the answers, and print them; 1 where nobody has answered."""
    run = find(name_in(verb, words), words)
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended: there is nothing left to look at")
    dump = asyncio.run(_ask(run))
    if words.has("--json"):
        print(json.dumps(dump.plain()))
    else:
        print("\n".join(lines_of(dump)))
    if dump.answered:
        return 0
    print(f"cockpit: {dump.why}", file=sys.stderr)
    return 1


async def _ask(run: Run) -> Dump:
    """The answers, as far as they have come by ``ANSWER_S``."""
    following, asked, until_s = Following(run), dict[str, Any](), 0.0
    loop, dump = asyncio.get_running_loop(), Dump()
    states = following.states()
    try:
        while not dump.whole and (not asked or loop.time() < until_s):
            left_s = until_s - loop.time() if asked else None
            try:
                state = await asyncio.wait_for(anext(states), left_s)
            except (TimeoutError, StopAsyncIteration):
                break
            if not asked:
                if following.link is None:
                    raise CockpitError(f"{run.name} has ended: there is nothing left to look at")
                asked, until_s = await following.link.command("dump"), loop.time() + ANSWER_S
            dump = dump_of(asked, state)
    finally:
        await following.close()
    return dump

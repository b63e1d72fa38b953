"""A link without an engine: hands out the states it is given, and keeps the commands it is asked for.

The face of ``history.link.Link``, so that the app can be driven by scripted runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cockpit.history.fold import fold
from cockpit.history.state import State
from cockpit.history.trials import is_restart
from cockpit.model.errors import CockpitError, LinkLost
from cockpit.model.events import ChangeAsked, ChangeMoved, Event


class FakeLink:
    """``commands``: what was asked, in order. ``refuse``: a verb to its refusal; ``answers``: a verb
    to what it returns. With ``queues`` a ``set`` becomes a queued change of the state and ``drop`` withdraws it, as the
    engine would do it."""

    def __init__(self, state: State | None = None, queues: bool = True) -> None:
        self.state, self.queues = state or State(), queues
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.refuse: dict[str, str] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self.slow_s = 0.0
        self.lost = False
        self.connects = 0
        self._news = asyncio.Event()
        self._asked = 0
        self._seen: State | None = None

    async def connect(self) -> FakeLink:
        self.connects += 1
        if self.lost:
            raise LinkLost("the engine does not answer")
        self._news.set()
        return self

    def show(self, state: State) -> None:
        """A newer state."""
        self.state = state
        self._news.set()

    def happen(self, *events: Event) -> None:
        """Newer events."""
        for event in events:
            self.state = fold(self.state, event)
        self._news.set()

    def lose(self) -> None:
        """The engine dies."""
        self.lost = True
        self._news.set()

    async def next_state(self) -> State:
        await self._news.wait()
        self._news.clear()
        if self.lost:
            self._news.set()
            if self._seen is not self.state:  # everything that was said is handed out first
                self._seen = self.state
                return self.state
            raise LinkLost("the engine does not answer")
        self._seen = self.state
        return self.state

    async def command(self, verb: str, **args: Any) -> dict[str, Any]:
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        self.commands.append((verb, args))
        if verb in self.refuse:
            raise CockpitError(self.refuse[verb])
        if self.queues and verb == "set":
            self._asked += 1
            queued = [entry for entry in self.state.ledger if entry.state == "queued" and not is_restart(entry)]
            merged = {name: value for entry in queued for name, value in entry.asked.items()}
            self._drop(entry.id for entry in queued)
            id = f"fake{self._asked}"
            self.happen(ChangeAsked(self.state.at_s, id, {**merged, **args["knobs"]}, args["now"]))
            return {"id": id}
        if self.queues and verb == "drop":
            self._drop(entry.id for entry in self.state.ledger if entry.state == "queued")
        return self.answers.get(verb, {})

    def _drop(self, ids: Iterable[str]) -> None:
        for id in list(ids):
            self.happen(ChangeMoved(self.state.at_s, id, "dropped"))

    async def close(self) -> None:
        pass

"""The screen's line to the engine: keeps the newest state, reconnects every second, carries commands.

Held by the app. It never draws and never raises for a lost engine: it remembers since when it is lost, and the
screen shows that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from cockpit.history.state import State
from cockpit.model.errors import CockpitError, LinkLost

RETRY_S = 1.0
REVIVE_EVERY = 5
"""Every so many failed tries the engine is started anew, where the caller knows how."""


class Line(Protocol):
    """What a link can do; the real one is ``history.link.Link``, the other one is the tests' fake."""

    async def next_state(self) -> State: ...

    async def command(self, verb: str, **args: Any) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class Feed:
    """``state``: the newest, None before the first. ``lost_s``: when the engine was lost, None while it answers."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Line]],
        clock: Callable[[], float],
        revive: Callable[[], None] | None = None,
        on_first: Callable[[], None] | None = None,
    ) -> None:
        self._connect, self._clock, self._revive, self._on_first = connect, clock, revive, on_first
        self._line: Line | None = None
        self._reviving: threading.Thread | None = None
        self.state: State | None = None
        self.lost_s: float | None = None

    async def run(self) -> None:
        """Follow the engine until cancelled."""
        tries = 0
        try:
            while True:
                try:
                    self._line = await self._connect()
                    while True:
                        state = await self._line.next_state()
                        first, tries = self.state is None or self.lost_s is not None, 0
                        self.state, self.lost_s = state, None
                        if first and self._on_first is not None:
                            self._on_first()
                except LinkLost:
                    self._lose()
                await self._leave()
                tries += 1
                if self._revive is not None and tries % REVIVE_EVERY == 1 and not self.over:
                    self._start_reviving(self._revive)
                await asyncio.sleep(RETRY_S)
        finally:
            await self._leave()

    @property
    def over(self) -> bool:
        """Whether the training has ended, so that an engine that leaves is no loss."""
        return self.state is not None and self.state.phase in ("ended", "lost")

    def _lose(self) -> None:
        if self.lost_s is None and not self.over:
            self.lost_s = self._clock()

    def _start_reviving(self, revive: Callable[[], None]) -> None:
        """In a thread that nobody waits for: leaving the screen must not wait for an engine."""

        def work() -> None:
            # what goes wrong is shown as lost, and tried again
            with suppress(CockpitError, OSError):
                revive()

        if self._reviving is None or not self._reviving.is_alive():
            self._reviving = threading.Thread(target=work, name="cockpit-revive", daemon=True)
            self._reviving.start()

    async def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def command(self, verb: str, **args: Any) -> dict[str, Any]:
        """Ask the engine; raises CockpitError with a sentence for the user."""
        if self._line is None:
            raise LinkLost("the engine does not answer at the moment; the training is not affected")
        return await self._line.command(verb, **args)

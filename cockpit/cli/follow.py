"""Follow one run from the shell until something has happened: its states, through a lost engine and back.

Used by ``run --headless`` and ``set --wait``. Losing the engine is not the end of anything: a new one is started
and asked again; only the run's own end, or an engine that cannot be had, ends the following.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from cockpit.history.link import Link
from cockpit.history.state import State
from cockpit.model.errors import LinkLost

from .runs import Run, recorded_state, revive

TRIES = 10
PAUSE_S = 1.0


class Following:
    """The run's states as they come; ``link`` is the present connection, None between two engines."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.link: Link | None = None

    async def states(self) -> AsyncIterator[State]:
        """Every newest state; the last has ``phase`` ended or lost. Raises CockpitError when no engine can be had."""
        tries = 0
        while True:
            try:
                if not await asyncio.to_thread(revive, self.run):
                    yield recorded_state(self.run)
                    return
                self.link = await Link.connect(self.run.socket)
                while True:
                    state = await self.link.next_state()
                    tries = 0
                    yield state
                    if state.phase in ("ended", "lost"):
                        return
            except LinkLost:
                await self.close()
                tries += 1
                if tries > TRIES:
                    raise
                await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Leave the engine; the run goes on."""
        if self.link is not None:
            await self.link.close()
            self.link = None

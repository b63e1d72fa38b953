"""The real screen on this terminal with a scripted run behind it, for eyes, tmux and the bench.

``PYTHONPATH=.:tests python -m tui.play [seconds played before] [speed] [gpu]``: events come in real time, keys really
queue and land changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from tui.fake_link import FakeLink
from tui.scenes import BEGAN_S, Script

from cockpit.history.fold import fold, fold_all
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeMoved, LoadersSeen, Sampled
from cockpit.tui.app import show


class Played(FakeLink):
    """A scripted run that goes on: half a second of events every half second."""

    def __init__(self, before_s: float, speed: float, script: Script) -> None:
        self.script, self.shift_s, self.speed = script, time.time() - BEGAN_S - before_s - 1.5, speed
        events = list(script.events(before_s))
        super().__init__(fold_all(replace(event, at_s=event.at_s + self.shift_s) for event in events))
        self.half = int(before_s * 2)
        self._playing: asyncio.Task[None] | None = None

    async def connect(self) -> Played:
        await super().connect()
        self._playing = self._playing or asyncio.get_running_loop().create_task(self.play())
        return self

    async def play(self) -> None:
        while True:
            await asyncio.sleep(0.5 / self.speed)
            self.half += 1
            at_s = BEGAN_S + 1.5 + self.half * 0.5
            for event in self.script.second(at_s):
                await asyncio.sleep(0)  # the engine's events do not come in one piece
                self.happen(replace(event, at_s=event.at_s + self.shift_s))
            for entry in self.state.ledger:
                if entry.state == "queued" and (entry.now or self.half % 40 == 0):
                    for event in self.script.land(at_s, entry.asked, entry.id):
                        assert isinstance(event, ChangeMoved | LoadersSeen | Sampled)
                        self.state = fold(self.state, replace(event, at_s=event.at_s + self.shift_s))


def main() -> None:
    before_s = float(sys.argv[1]) if len(sys.argv) > 1 else 131.0
    speed = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    at = {46.0: {"num_workers": 2}, 88.0: {"num_workers": 4}} if before_s > 80 else {}
    script = Script(at, gpu="gpu" in sys.argv)
    link: list[Played] = []

    async def connect() -> Played:
        if not link:
            link.append(Played(before_s, speed, script))
        return await link[0].connect()

    if os.environ.get("COCKPIT_TEST_TICK"):
        _disturb(os.environ["COCKPIT_TEST_TICK"])
    try:
        how = show(connect, Path("/nonexistent"))
    except CockpitError as error:
        sys.exit(str(error))
    with contextlib.suppress(OSError):
        print("left:", how)


def _disturb(how: str) -> None:
    """At the first tick the screen breaks, or from then on does not hear of a hang-up."""
    from cockpit.tui.cockpit import Cockpit

    def tick(app: Cockpit) -> None:
        if how == "break":
            raise ValueError("broken on purpose")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        app.paint()

    Cockpit.tick = tick  # type: ignore[method-assign]


if __name__ == "__main__":
    main()

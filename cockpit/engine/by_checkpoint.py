"""A restart of a script that resumes by itself (``--resume-with``): it is stopped softly once it has written its next
checkpoint, and begins again from that, with another environment.

Called by ``engine`` and ``verbs``. What was trained since the checkpoint is lost, so nothing is stopped before there is
a complete one; until then nothing has happened, and ``cockpit drop`` calls it off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.history.state import State
from cockpit.history.trials import entry_of
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeAsked, ChangeMoved
from cockpit.model.knobs import RESTART

from .beginnings import Beginnings, Wish
from .crash_plan import Base, settings_of
from .crashes import Crashes
from .processes import Pids
from .record import Record

LOOK_S = 0.5
UNSEEN = (
    "what {script} saves cannot be seen from here: name it at the start with --checkpoints PATTERN, or restart --now "
    "from whatever it finds by itself"
)


GUESSED = (
    "nothing says which of the files that {script} writes it can resume from, and it is not stopped for a guess: name "
    "them at the start with --checkpoints PATTERN; or cockpit stop it, and cockpit restart it from the newest"
)

THROUGH = "the training had just ended by itself"


@dataclass
class Asked:
    """``key``: of the newest checkpoint at that time. ``base``: from the moment that the training is told to stop,
    ``stopped_s``."""

    change: str
    wish: Wish
    key: str
    now: bool
    base: Base | None = None
    stopped_s: float = 0.0


class ByCheckpoint:
    """``stop`` stops the training softly. ``clock`` gives seconds since the epoch."""

    def __init__(
        self,
        record: Record,
        carried: set[str],
        crashes: Crashes,
        beginnings: Beginnings,
        stop: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._record, self._carried, self._crashes, self._beginnings = record, carried, crashes, beginnings
        self._stop, self._clock = stop, clock
        self._asked: Asked | None = None
        self._looked_s = 0.0

    def is_for(self, state: State) -> bool:
        """Whether this is how this training is restarted: it was told how, and hands nothing over."""
        opted_in = state.session is not None and bool(state.session.names) and state.session.reason is None
        return self._crashes.bases.resumes_itself and not opted_in

    def ask(self, env: Mapping[str, str | None], change: str, now: bool, origin: str) -> dict[str, Any]:
        """Remember it; raises CockpitError with the reason why not."""
        wish, base = self._checked(env, now)
        self._asked = Asked(change, wish, base.key if base is not None else "", now)
        self._carried.add(change)
        note = f"the training is stopped, and goes on from {base.words if base else ''}" if now else self._waits_for()
        self._record.happen(ChangeAsked(self._clock(), change, wish.asked, now=now, origin=origin))
        self._record.happen(ChangeMoved(self._clock(), change, "queued", note=note))
        return {"id": change, "note": note, "begun": False}

    def preview(self, env: Mapping[str, str | None]) -> dict[str, Any]:
        """What asking would come to: ``reason`` why not, else what it costs in words (``goes_on``)."""
        try:
            self._checked(env, now=False)
        except CockpitError as error:
            return {"reason": str(error)}
        lost = "what it trains after that until it has stopped is lost"
        return {"reason": None, "goes_on": f"{self._waits_for()}, and begins again from that; {lost}"}

    def _waits_for(self) -> str:
        search = self._crashes.bases.search
        where = "" if search is None else f" ({search.pattern})"
        return f"the training goes on until it has written its next checkpoint{where}"

    def _checked(self, env: Mapping[str, str | None], now: bool) -> tuple[Wish, Base | None]:
        """What is asked for and the newest checkpoint; raises CockpitError with the reason why not."""
        state = self._record.state
        if self._asked is not None:
            raise CockpitError("a restart is already under way: cockpit drop calls it off while nothing was stopped")
        if not state.step:
            raise CockpitError("no step has been made yet: stop it and start it again")
        wish = self._beginnings.wish(env)
        if env and RESTART in wish.asked:
            raise CockpitError(", ".join(f"{name} is so already" for name in env))
        if self._crashes.bases.is_guess:
            raise CockpitError(GUESSED.format(script=state.script))
        if self._crashes.bases.search is None and not now:
            raise CockpitError(UNSEEN.format(script=state.script))
        base, why = self._crashes.bases.checkpoint(state, quiet=False)
        if base is None and now:
            raise CockpitError(f"nothing to go on from yet: {why}")
        return wish, base

    def call_off(self, reason: str | None = None) -> bool:
        """Forget it; without a ``reason`` it leaves the ledger. False where there is none."""
        asked, self._asked = self._asked, None
        if asked is None:
            return False
        self._carried.discard(asked.change)
        state = "refused" if reason else "dropped"
        self._record.happen(ChangeMoved(self._clock(), asked.change, state, reason=reason))
        return True

    @property
    def stops(self) -> bool:
        """Whether the training was told to stop for it: then nothing can be called off but by stopping it for good."""
        return self._asked is not None and self._asked.base is not None

    def look(self) -> None:
        """Whether the checkpoint is there that was waited for."""
        asked, state = self._asked, self._record.state
        if asked is None or asked.base is not None or state.phase != "running":
            return
        if time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = time.monotonic()
        base, _ = self._crashes.bases.checkpoint(state, quiet=False)
        if base is not None and (asked.now or base.key != asked.key):
            if (reason := self._crashes.no_room()) is not None:
                self._tell_once(asked.change, f"the training goes on: {reason}")
                return
            asked.base, asked.stopped_s = base, self._clock()
            note = f"the training is stopped, and goes on from {base.words}"
            self._record.happen(ChangeMoved(asked.stopped_s, asked.change, "queued", note=note))
            self._stop()

    def _tell_once(self, change: str, note: str) -> None:
        entry = entry_of(self._record.state, change)
        if entry is not None and entry.note != note:
            self._record.happen(ChangeMoved(self._clock(), change, "queued", note=note))

    def after_the_end(self, pids: Pids | None) -> bool:
        """The training has stopped: whether it did for this, and goes on."""
        asked, state = self._asked, self._record.state
        if asked is None or asked.base is None:
            return False
        reason = THROUGH if self._crashes.had_ended(pids, asked.stopped_s) else self._crashes.still()
        if reason is not None:
            self.call_off(reason)
            return False
        self._asked = None
        newer, _ = self._crashes.bases.checkpoint(state, quiet=True)  # it may have saved once more
        if newer is not None and newer.key != asked.base.key:
            note = f"the training was stopped, and goes on from {newer.words}, which it has written since"
            self._record.happen(ChangeMoved(self._clock(), asked.change, "queued", note=note))
        self._crashes.follow(asked.change, newer or asked.base, settings_of(state), asked.wish, stopped=True)
        return True

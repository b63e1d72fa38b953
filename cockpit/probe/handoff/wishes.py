"""The wishes for hand-offs that wait in this process, and the newest answer to each. Held by ``live``.

``ask`` and ``drop`` come from any thread, the rest from the script's. Every wish gets an answer, and none is taken
twice; it keeps no lock.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any, Callable

from ..begins_again import changed_since_looked
from ..guard import attempt
from ..lives import claim_go
from .folder import first_line
from .telling import GIVEN_UP, LAST, tell
from .wish import FAILED, GONE, QUEUED, WRITTEN, Wish, Written


class Wishes:
    """``say`` takes messages for the engine."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._waiting: deque[Wish] = deque()
        self.answers: dict[str, dict[str, Any]] = {}
        """The newest to each, by id: for an engine that is new or was away."""

    def ask(self, wish: Wish, reason: str | None) -> None:
        """It waits; answered at once where there will be none, for this ``reason``. A known id is ignored."""
        if wish.id in self.answers:
            return
        self.answer(wish, Written(None), QUEUED)
        self._waiting.append(wish)
        if reason is not None:
            self.answer_all(reason)

    def drop(self, name: str) -> None:
        """It is called off."""
        for wish in [wish for wish in list(self._waiting) if wish.id == name]:
            with contextlib.suppress(ValueError):  # its time has just come
                self._waiting.remove(wish)
                self.answers.pop(name, None)

    def answer(self, wish: Wish, written: Written, state: str) -> None:
        """What has become of one."""
        self.answers[wish.id] = written.message(wish.id, state)
        self._say(self.answers[wish.id])

    def answer_all(self, reason: str) -> None:
        """Nothing will come of those that wait."""
        for wish in self.taken():
            self.answer(wish, Written(reason), FAILED)

    def taken(self) -> list[Wish]:
        """All that wait, none of them twice: two threads may take, and one may drop."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._waiting.popleft())
        return found


def followed(wish: Wish, written: Written, left: int, doubt: str | None = None) -> tuple[str, str | None]:
    """What becomes of a wish after the writing, with so many epochs ``left``. GONE: another process is this training
    now, for good. ``doubt``: why it may not be able to restore what it is given."""
    if written.reason is not None or wish.life is None:
        return (FAILED if written.reason else WRITTEN), written.reason
    if left <= 0:
        return FAILED, LAST
    changed = changed_since_looked(wish.life)
    if changed is not None:
        return FAILED, changed
    if doubt is not None:
        tell(doubt)
    go = {"handoff": written.path, "epoch": written.epoch, "step": written.step, "epochs_left": left}
    claimed, error = attempt(claim_go, wish.life, go)
    if error is not None:
        return FAILED, "the new process could not be told: %s" % first_line(error)
    return (GONE, None) if claimed else (FAILED, GIVEN_UP)

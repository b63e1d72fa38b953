"""Tells that the training saves, or waits for its loader's workers to end: neither is a hang of the loader.

Round ``torch.save`` and torch's own end of an iterator's workers, put there by install. It belongs to no phase of a
step, and what other threads do is none of its business.
"""

from __future__ import annotations

from typing import Any

from .recorder import SAVE, Recorder


class Spell:
    """``entering`` and ``left`` go round the function through the guard; meanwhile the training is ``doing`` that."""

    def __init__(self, recorder: Recorder, doing: str) -> None:
        self._recorder = recorder
        self._doing = doing

    def entering(self, *_: Any) -> tuple[str, int] | None:
        """What the training was doing, to go on with afterwards."""
        recorder = self._recorder
        if recorder.away is not None and self._doing == SAVE:
            recorder.away("a save")
        if recorder.thread is not None and recorder.thread != recorder.ident():
            return None
        was = recorder.doing, recorder.since
        recorder.doing, recorder.since = self._doing, recorder.clock()
        return was

    def left(self, token: tuple[str, int], result: Any, error: BaseException | None) -> None:
        """It goes on, and what it does now begins now."""
        self._recorder.doing, self._recorder.since = token[0], self._recorder.clock()

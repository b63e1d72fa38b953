"""Tells that the training saves: a checkpoint that takes a minute is no hang.

Round ``torch.save``, put there by install. It belongs to no phase of a step, and what other threads save is none of
its business.
"""

from __future__ import annotations

from typing import Any

from .recorder import SAVE, Recorder


class Saving:
    """``entering`` and ``left`` go round the function through the guard."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def entering(self, *_: Any) -> tuple[str, int] | None:
        """What the training was doing, to go on with afterwards."""
        recorder = self._recorder
        if recorder.thread is not None and recorder.thread != recorder.ident():
            return None
        was = recorder.doing, recorder.since
        recorder.doing, recorder.since = SAVE, recorder.clock()
        return was

    def left(self, token: tuple[str, int], result: Any, error: BaseException | None) -> None:
        """It goes on, and what it does now begins now."""
        self._recorder.doing, self._recorder.since = token[0], self._recorder.clock()

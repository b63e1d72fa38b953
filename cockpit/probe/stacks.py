"""Where the training's threads and its workers stand just now, for a person who asks; nothing is stopped for it.

Runs in the probe's own thread. The training's threads are looked at through the interpreter. A worker answers only
where a change of ours has made it (``worker_stacks``); of every other one the kernel's own words must do: the script's
workers are as the script has them. It must never take a lock, read a file of the script, or keep a frame.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any

from .recorder import Recorder
from .registry import Registry
from .stuck import StuckWatch
from .worker_stacks import Question, question

FRAMES = 60
THREADS = 40
BEATS = 10
"""So many beats a worker may take to answer: one that hangs in C code does at once, one that is frozen never does."""

Part = list[Any]
"""``[title, lines]``, as it goes over the wire."""


class Stacks:
    """One question at a time; a new one takes the place of one that is still open."""

    def __init__(self, recorder: Recorder, registry: Registry, stuck: StuckWatch) -> None:
        self._recorder, self._registry, self._stuck = recorder, registry, stuck
        self._id: str | None = None
        self._questions: list[Question] = []
        self._beats = 0

    def receive(self, message: Mapping[str, Any]) -> None:
        """Of what the engine says, only a ``dump`` is ours."""
        if message.get("m") != "dump":
            return
        self._id, self._beats = str(message.get("id")), 0
        ours = self._stuck.pids()
        # what the records know is a second old: an epoch may have ended since
        told = [pid for record in list(self._registry.records.values()) for pid in record.workers]
        known = [pid for pid in told if os.path.exists("/proc/%d" % pid)]
        self._questions = [question(pid, pid in ours) for pid in sorted({*ours, *known})]

    def beat(self, now_ns: int) -> dict[str, Any] | None:
        """The answer, once it is whole."""
        if self._id is None:
            return None
        self._beats += 1
        if self._beats < BEATS and any(question.is_open() for question in self._questions):
            return None
        recorder = self._recorder
        threads = threads_now(recorder.thread, recorder.doing, (now_ns - recorder.since) / 1e9)
        parts = [*threads, *(question.answer() for question in self._questions)]
        message = {"m": "stacks", "id": self._id, "pid": os.getpid(), "parts": parts}
        self._id, self._questions = None, []
        return message


def threads_now(trains: int | None, doing: str, doing_s: float) -> list[Part]:
    """Every thread but this one, the one that trains first."""
    names = {ident: thread.name for ident, thread in list(threading._active.items())}  # type: ignore[attr-defined]
    natives = {ident: thread.native_id for ident, thread in list(threading._active.items())}  # type: ignore[attr-defined]
    mine, parts = threading.get_ident(), []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] != trains):
        if ident == mine:
            continue
        title = "thread %s" % names.get(ident, "of foreign making")
        title += " (%s)" % natives[ident] if natives.get(ident) else ""
        if ident == trains:
            title += ", which trains: %s for %.1f s" % (doing.replace("_", " "), doing_s)
        parts.append([title, lines_of(frame)])
        if len(parts) >= THREADS:
            break
    return parts


def lines_of(frame: FrameType | None) -> list[str]:
    """The calls that lead to ``frame``, the most recent first, as ``faulthandler`` writes them."""
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES:
        code = frame.f_code
        lines.append('File "%s", line %d in %s' % (code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return lines if frame is None else [*lines, "…"]

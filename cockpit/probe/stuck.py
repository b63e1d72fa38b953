"""Workers that have stopped in the middle of handing something over: ended from the probe's own thread.

While the training's thread reads a message, or fetches the tensors that it names, no timeout of ours runs: it waits
in the kernel for a worker that may be frozen, or hang in C code with the interpreter's lock. Called at each beat;
touches only workers that the script has not asked for, and only after the patience that all waits have.
"""

from __future__ import annotations

import weakref
from typing import Any

from . import orphans


class StuckWatch:
    """Told of each source that is built under settings other than the script's own; holds them weakly."""

    def __init__(self) -> None:
        self._sources: dict[int, Any] = {}
        self._seen: dict[int, tuple[int, float]] = {}

    def add(self, source: Any) -> None:
        key = id(source)
        self._sources[key] = weakref.ref(source, lambda _: self._sources.pop(key, None))

    def pids(self) -> set[int]:
        """Workers that live under settings of ours."""
        sources = [ref() for ref in list(self._sources.values())]
        return {pid for source in sources if source is not None for pid in source.pids}

    def beat(self, beat_s: float) -> None:
        """``beat_s`` seconds have passed: beats are counted, not the clock, for a suspended training waits for none."""
        seen: dict[int, tuple[int, float]] = {}
        for key, ref in list(self._sources.items()):
            source = ref()
            if source is None or not source.polling or source.given_up is not None:
                continue
            poll, stuck_s = self._seen.get(key, (source.polls, 0.0))
            stuck_s = stuck_s + beat_s if poll == source.polls else 0.0
            seen[key] = (source.polls, stuck_s)
            if source.patience.is_over(stuck_s):
                source.given_up = "a worker has stood still for %.0f s in the middle of handing over a batch" % stuck_s
                for worker in source._workers:
                    worker.kill()  # the training's thread hears of it: its read ends
        self._seen = seen
        orphans.beat(beat_s)

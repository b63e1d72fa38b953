"""Memory that a run's processes hold together, each shared page counted once; called by ``machine`` now and then.

Only what must be given back before anybody else can have it: page cache of files that are read or mapped is the
kernel's to drop and is in no figure here. Must never call a part of the run the whole: where one process that lives
is closed to us, there is no figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from cockpit.sensors.procfs import read_bytes

KINDS = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
EVERY_S = 10.0
COST_SHARE = 1000.0
"""The kernel walks the page tables of a process for it, which takes long for a large one: so rarely that it never
takes more than this part of the time."""


@dataclass(frozen=True)
class MemoryReading:
    """Bytes at ``at_s``: of all processes of the run, and of the loader's workers among them."""

    at_s: float
    used_bytes: int
    workers_bytes: int


class TreeMemory:
    """``proc`` is the folder to read; ``clock`` times the reading itself."""

    def __init__(self, proc: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self._proc = proc
        self._clock = clock
        self._last: MemoryReading | None = None
        self._next_s: float | None = None

    def read(self, now_s: float, worker_pids: Collection[int], other_pids: Iterable[int]) -> MemoryReading | None:
        """The newest one: the same as before until the next is due. None: none could be made."""
        if self._next_s is None:
            self._next_s = now_s + EVERY_S  # a process that has just begun holds nothing yet
        if now_s >= self._next_s:
            began = self._clock()
            workers = self._held(worker_pids)
            others = self._held(set(other_pids) - set(worker_pids))
            known = workers is not None and others is not None
            self._last = MemoryReading(now_s, workers + others, workers) if known else None  # type: ignore[operator,arg-type]
            self._next_s = now_s + max(EVERY_S, COST_SHARE * (self._clock() - began))
        return self._last

    def _held(self, pids: Iterable[int]) -> int | None:
        total = 0
        for pid in pids:
            found = held_bytes(read_bytes(f"{self._proc}/{pid}/smaps_rollup"))
            if found is None and read_bytes(f"{self._proc}/{pid}/cmdline"):
                return None  # it lives (what has ended has no command line any more)
            total += found or 0
        return total


def held_bytes(text: bytes | None) -> int | None:
    """What ``smaps_rollup`` says; None where it says nothing, or the kernel is too old to tell files apart."""
    found = [line.split() for line in (text or b"").splitlines() if line.startswith(KINDS)]
    if not {line[0] for line in found} >= set(KINDS[:2]):
        return None
    return sum(1024 * int(line[1]) for line in found)

"""Which processes belong to a run: those that bear its mark in their environment, and descendants of the training.

Called by ``machine`` at each reading; looks at most every few seconds and reads a process only while it is new, so
that a node with thousands of processes costs next to nothing. Must never count the engine itself.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from cockpit.sensors.procfs import has_mark, list_pids, read_stat

LOOKS_WHILE_NEW = 3
"""A process between fork and exec still has its parent's environment: a new one is read so many times."""


@dataclass
class Known:
    """What we have read about one process of the machine."""

    started_ticks: int
    parent: int
    looks: int = 0
    marked: bool = False


class Members:
    """Finds the run's processes. ``mark`` is ``NAME=value`` as it stands in an environment (None: descendants only)."""

    def __init__(self, proc: Path, mark: bytes | None, ignore: AbstractSet[int], rescan_s: float = 3.0) -> None:
        self._proc = proc
        self._mark = mark
        self._ignore = frozenset(ignore)
        self._rescan_s = rescan_s
        self._scanned_at_s: float | None = None
        self._known: dict[int, Known] = {}
        self._ours: frozenset[int] = frozenset()

    def find(self, now_s: float, main_pid: int | None) -> frozenset[int]:
        """All processes of the run but ``main_pid``, as of the last look (at most ``rescan_s`` old)."""
        due = self._scanned_at_s is None or not 0 <= now_s - self._scanned_at_s < self._rescan_s
        if due:
            self._scanned_at_s = now_s
            self._scan(main_pid)
        return self._ours - {main_pid}

    def _scan(self, main_pid: int | None) -> None:
        known = {pid: self._look(pid) for pid in list_pids(self._proc)}
        self._known = {pid: found for pid, found in known.items() if found is not None}
        # membership sticks: a child that outlived its parent has another parent now, but is still the run's
        ours = {pid for pid in self._ours if pid in self._known} | {main_pid}
        # parents start before their children, so that one pass in this order finds all generations
        for pid, found in sorted(self._known.items(), key=lambda item: (item[1].started_ticks, item[0])):
            if pid not in self._ignore and (found.marked or found.parent in ours):
                ours.add(pid)
        self._ours = frozenset(pid for pid in ours if pid is not None)

    def _look(self, pid: int) -> Known | None:
        found = self._known.get(pid)
        if found is not None and found.looks >= LOOKS_WHILE_NEW:
            return found
        stat = read_stat(self._proc, pid)
        if stat is None:
            return None
        if found is None or found.started_ticks != stat.started_ticks:
            found = Known(stat.started_ticks, stat.parent)
        found.looks += 1
        found.marked = found.marked or (self._mark is not None and has_mark(self._proc, pid, self._mark))
        return found

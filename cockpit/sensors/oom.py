"""Whether the kernel has ended a process for lack of memory just now, for the engine's words on a crash.

Reads two counters: that of the training's own control group, which means one of its processes, and the machine's, which
may mean anybody's. It must never call likely what it has not seen counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from cockpit.sensors.cgroup import find_groups, find_mounts, walk_up
from cockpit.sensors.procfs import read_text

LOOKS, EVERY_S = 8, 1.0
"""So many looks are remembered, and no more often than that: a kill is counted before anybody notices who is gone."""


class OomKills:
    """``root`` is where ``/proc`` and ``/sys`` are, ``clock`` one that only goes on."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._looked_s: float | None = None
        self._own: Path | None = None
        self._counts: deque[tuple[int | None, int | None]] = deque(maxlen=LOOKS)

    def follow(self, pid: int) -> None:
        """The process whose group is meant from now on; its group is found while it lives."""
        group = find_groups(pid, self._root).get(2)
        mounts = [mount for mount in find_mounts(self._root) if mount.version == 2]
        folders = [folder for mount in mounts if group is not None for folder in walk_up(mount, group, self._root)]
        self._own = folders[0] / "memory.events" if folders else None
        self._counts.clear()
        self._read()

    def look(self) -> None:
        """As often as there is an occasion."""
        if self._looked_s is None or self._clock() - self._looked_s >= EVERY_S:
            self._read()

    def _read(self) -> None:
        self._looked_s = self._clock()
        own = _count(read_text(self._own)) if self._own is not None else None
        self._counts.append((own, _count(read_text(self._root / "proc" / "vmstat"))))

    def words(self) -> str | None:
        """What has been counted in the last seconds; None: nothing."""
        if not self._counts:
            return None
        before = self._counts[0]
        self._read()
        own, anybody = (
            now is not None and then is not None and now > then
            for then, now in zip(before, self._counts[-1], strict=True)
        )
        return "out of memory" if own else "likely out of memory" if anybody else None


def _count(text: str | None) -> int | None:
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None

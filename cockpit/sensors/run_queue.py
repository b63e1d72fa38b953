"""How long the run's processes wait for a CPU although they could run; called by ``machine``.

The one sign that tells a full machine from an oversubscribed one (CPU shows 100 % for both): about 0 with a core
for everybody, ½ with two for each core. Of each process only its first thread is read, where Python runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cockpit.sensors.procfs import read_schedstat


class RunQueue:
    """Keeps the last counts of each process. ``proc`` is the folder to read."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._before: dict[int, tuple[int, int]] = {}

    def read(self, pids: Iterable[int]) -> float | None:
        """Waiting as a share (0..1) of waiting + running since the call before; None: no process read twice."""
        now = {pid: found for pid in pids if (found := read_schedstat(self._proc, pid)) is not None}
        ran = waited = 0
        seen_twice = False
        for pid, (run_ns, wait_ns) in now.items():
            run_before_ns, wait_before_ns = self._before.get(pid, (run_ns + 1, 0))
            if run_ns < run_before_ns or wait_ns < wait_before_ns:
                continue  # new, or another process under the same pid
            seen_twice = True
            ran += run_ns - run_before_ns
            waited += wait_ns - wait_before_ns
        self._before = now
        if not seen_twice:
            return None
        return waited / (ran + waited) if ran + waited else 0.0

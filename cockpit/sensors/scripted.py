"""A machine that plays a list of readings: for tests, screenshots and recordings, beside the real one.

Only its ``at_s`` follows the caller's clock; everything else is what the list says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cockpit.sensors.machine import MachineReading


class ScriptedMachine:
    """Gives ``readings`` one after the other, then the last one for ever (``again``: the list anew).

    ``asked`` holds (now_s, main_pid, worker_pids) of each call, for tests of the caller.
    """

    def __init__(self, readings: Sequence[MachineReading], again: bool = False) -> None:
        if not readings:
            raise ValueError("a scripted machine needs at least one reading")
        self._readings = tuple(readings)
        self._again = again
        self.asked: list[tuple[float, int | None, tuple[int, ...]]] = []

    def read(self, now_s: float, main_pid: int | None, worker_pids: Collection[int]) -> MachineReading:
        """The next reading of the list, as if taken at ``now_s``."""
        at = len(self.asked)
        self.asked.append((now_s, main_pid, tuple(worker_pids)))
        last = len(self._readings) - 1
        return replace(self._readings[at % (last + 1) if self._again else min(at, last)], at_s=now_s)

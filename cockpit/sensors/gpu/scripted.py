"""A scripted accelerator beside the real ones: plays a list of readings, for tests, demonstrations and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cockpit.sensors.gpu.figures import GpuReading


class ScriptedGpu:
    """Gives each reading once, then the last one for ever; ``asked`` keeps what it was asked for."""

    def __init__(self, readings: Sequence[GpuReading]) -> None:
        self._left = list(readings) or [GpuReading()]
        self.asked: list[tuple[str, ...]] = []
        self.closed = False

    def read(self, now_s: float, uuids: Sequence[str]) -> GpuReading:
        """See ``GpuReader``; without devices there is nothing to read."""
        self.asked.append(tuple(uuids))
        if not uuids:
            return GpuReading()
        return replace(self._left.pop(0) if len(self._left) > 1 else self._left[0], at_s=now_s)

    def close(self) -> None:
        """Nothing was started."""
        self.closed = True

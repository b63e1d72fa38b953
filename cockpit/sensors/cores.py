"""How busy each core of the machine was, whoever used it; called by ``machine``.

Differences of ``/proc/stat``, so the first reading is "not measured". Must never line a figure up with the wrong
core: where a wanted core has no line (switched off, or a container shows its own numbering), there is no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cockpit.sensors.procfs import read_text


@dataclass(frozen=True)
class CoresReading:
    """``busy``: 0..1 for each wanted core, in the order asked, () where not measured.

    ``machine`` is the sum over all cores of the machine, in cores; None where not measured.
    """

    busy: tuple[float, ...] = ()
    machine: float | None = None


class Cores:
    """Keeps the last counts of each core. ``proc`` is the folder to read."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._before: dict[int, tuple[int, int]] = {}

    def read(self, wanted: Sequence[int]) -> CoresReading:
        """Shares since the call before."""
        now = parse_cores(read_text(self._proc / "stat") or "")
        shares: dict[int, float] = {}
        for core, (busy, total) in now.items():
            before = self._before.get(core)
            if before is not None and total > before[1]:
                # idle counts are known to step back a little; a share never leaves 0..1
                shares[core] = min(1.0, max(0.0, (busy - before[0]) / (total - before[1])))
        self._before = now
        return CoresReading(
            busy=tuple(shares[core] for core in wanted) if all(core in shares for core in wanted) else (),
            machine=sum(shares.values()) if shares and len(shares) == len(now) else None,
        )


def parse_cores(text: str) -> dict[int, tuple[int, int]]:
    """(busy, total) ticks of each core. Idle and waiting for a disk are not busy; time stolen by another guest is."""
    cores: dict[int, tuple[int, int]] = {}
    for line in text.splitlines():
        name, *counts = line.split() or [""]
        if not (name.startswith("cpu") and name[3:].isdecimal()):
            continue
        # guest time (the last two of ten) is contained in user and nice already
        ticks = [int(count) for count in counts[:8] if count.isdecimal()]
        if len(ticks) >= 5:
            cores[int(name[3:])] = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
    return cores

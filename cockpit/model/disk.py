"""How much room is left where a run's output goes: made by the engine, told only while there is little."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DiskSeen:
    """``free_bytes``: what is left on the disk that holds the run directory; None: enough again."""

    at_s: float
    free_bytes: int | None

"""How much memory a run's processes hold, and how much is left to them: made by the engine every ten seconds or so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemorySeen:
    """Bytes without page cache. ``workers_bytes``: what the loader's workers hold of ``used_bytes``. ``left_bytes``:
    what the machine and the control groups of the job leave; None where nobody tells. ``shm_free_bytes``: room in
    ``/dev/shm``, where workers put their batches."""

    at_s: float
    used_bytes: int
    workers_bytes: int = 0
    left_bytes: int | None = None
    shm_free_bytes: int | None = None

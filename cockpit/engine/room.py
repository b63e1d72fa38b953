"""Whether there is memory for a second process beside the training, while that still trains. Called by ``restarts``.

In a tight control group the kernel would end one of the two, and the training is the larger: where torch has no room
beside it, the new process imports it once the old one is gone, and where not even that is sure, nothing begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.model.errors import CockpitError
from cockpit.model.sizes import size_words
from cockpit.probe import lives
from cockpit.probe.memory_left import memory_left

from .rundir import RunDir

TORCH_BYTES, PYTHON_BYTES = 400 << 20, 48 << 20
"""What a process needs of its own that has imported torch, or nothing yet, and waits: 285 MB and 12 MB were seen."""
SPARE = 1.25


@dataclass(frozen=True)
class Room:
    """``free``: bytes that are left, None where nobody tells. ``torch``: what a process with torch in it would need."""

    free: int | None = None
    torch: int = TORCH_BYTES


UNKNOWN = Room()


def room_of(run: RunDir, pid: int) -> Room:
    """As it is now, beside ``pid``. An earlier process of the run that has waited knows what that takes."""
    measured = [_own_bytes(folder) for _, folder in lives.folders(str(run.data))]
    known = [size for size in measured if size]
    return Room(memory_left(pid), int(SPARE * known[-1]) if known else TORCH_BYTES)


def _own_bytes(folder: str) -> int:
    ready = lives.read(folder, lives.READY)
    kinds = ("private_clean_kb", "private_dirty_kb") if ready.get("torch") else ()
    return 1024 * sum(int(ready.get(kind) or 0) for kind in kinds)


def check_room(room: Room) -> None:
    """Raises CockpitError where a second process might end the training."""
    if room.free is not None and room.free < PYTHON_BYTES:
        left = f"only {size_words(room.free)} of memory are left beside the training"
        raise CockpitError(f"{left}: a second process might be the end of it")


def why_without_torch(room: Room) -> list[str]:
    """Why it had better wait without torch; empty where that has room."""
    if room.free is None or room.free >= room.torch:
        return []
    left, takes = size_words(room.free), size_words(room.torch)
    return [f"only {left} of memory are left beside the training, and torch takes {takes}"]

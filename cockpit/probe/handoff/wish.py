"""What the engine wants of the hand-offs of this process, and what came of it. Plain data between threads."""

from __future__ import annotations

from typing import Any, NamedTuple

QUEUED, WRITING, WRITTEN, GONE, FAILED = "queued", "writing", "written", "gone", "failed"
HELD = "held"
"""It has handed over, and what its script does after its loop would have gone on here."""
SPARED = "spared"
"""One was due, and left out: it would have taken too much of the time."""


class Wish(NamedTuple):
    """A hand-off at the next end of an epoch; ``life``: folder of the process that takes over after it, if one does."""

    id: str
    life: str | None = None
    limit_bytes: int | None = None


class Written(NamedTuple):
    """What came of it: a whole hand-off, or ``reason``, a sentence without its end, why there is none."""

    reason: str | None
    path: str | None = None
    nbytes: int | None = None
    seconds: float = 0.0
    epoch: int | None = None
    step: int | None = None

    def message(self, name: str | None, state: str) -> dict[str, Any]:
        """For the engine; ``name`` is None where nobody asked but the schedule."""
        return {
            "m": "handoff", "id": name, "state": state, "reason": self.reason, "path": self.path,
            "bytes": self.nbytes, "seconds": self.seconds, "epoch": self.epoch, "step": self.step,
        }  # fmt: skip

"""What torch has compiled in a training, whoever asked for it: an event of its own, since it stands apart from steps.

Made by the engine when the probe's count has moved; no phase, no throughput and no epoch holds any of this time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompiledSeen:
    """Since the training began: seconds spent compiling, graphs made, and how many compilations were a piece of code's
    second or later one. None: some of it was over before anybody could watch. 0 only where nothing was compiled."""

    at_s: float
    total_s: float | None = None
    graphs: int | None = None
    recompiles: int | None = None

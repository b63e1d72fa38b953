"""Windows: runs of whole blocks, long enough that a queue of ready batches cannot carry one.

Made from the blocks of one setup, for ``compare``. Step times are autocorrelated, so a single step is never a
sample; the unit of every comparison is one window's samples per second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.events import BlockMeasured
from .policy import POLICY, Policy


@dataclass(frozen=True)
class Window:
    """Whole blocks added up. ``samples`` None: the batches could not be counted, so it has no rate."""

    steps: int
    samples: int | None
    wall_s: float

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of wall time; None where samples are unknown."""
        return self.samples / self.wall_s if self.samples and self.wall_s > 0 else None


@dataclass(frozen=True)
class Length:
    """How long a window must be at least. Both sides of a comparison use the same."""

    steps: int
    wall_s: float


def length_for(capacity: int, policy: Policy = POLICY) -> Length:
    """The length for two setups whose larger queue holds ``capacity`` batches."""
    return Length(max(policy.window_steps, policy.window_capacities * capacity), policy.window_s)


def windows(blocks: Sequence[BlockMeasured], length: Length, policy: Policy = POLICY) -> tuple[Window, ...]:
    """``blocks`` cut into consecutive windows of at least ``length``; a short rest at the end is left out."""
    found: list[Window] = []
    pending: list[BlockMeasured] = []
    steps, wall = 0, 0.0
    for block in blocks:
        pending.append(block)
        steps += block.steps
        wall += block.wall_s
        if steps >= length.steps and wall >= length.wall_s:
            found.append(_window(pending, policy))
            pending, steps, wall = [], 0, 0.0
    return tuple(found)


def _window(blocks: list[BlockMeasured], policy: Policy) -> Window:
    """Add up, after dropping the slowest blocks (whole ones: waits alternate with the workers)."""
    drop = math.floor(len(blocks) * policy.trim_share)
    kept = sorted(blocks, key=lambda block: block.wall_s / block.steps)[: len(blocks) - drop]
    known = all(block.samples is not None for block in kept)
    return Window(
        steps=sum(block.steps for block in kept),
        samples=sum(block.samples or 0 for block in kept) if known else None,
        wall_s=sum(block.wall_s for block in kept),
    )


def rate(found: Sequence[Window]) -> float | None:
    """Mean samples per second of windows (geometric, as they are compared); None where there is nothing to say."""
    logs = [math.log(value) for window in found if (value := window.samples_per_s)]
    return math.exp(sum(logs) / len(logs)) if logs and len(logs) == len(found) else None

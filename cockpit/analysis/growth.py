"""Whether memory grows steadily, and when there will be none left: pure, over samples that the state keeps.

Called by ``history.memory``. It must not cry wolf: what fills up and stops, what comes and goes with each epoch, and
what is within its own noise grows for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .policy import POLICY, Policy


@dataclass(frozen=True)
class Line:
    """A least-squares line: bytes per second, and how far the samples lie from it (root mean square)."""

    per_s: float
    off: float


@dataclass(frozen=True)
class Growth:
    """``per_s``: bytes per second, by the newer half of the samples. ``span_s``: how long it was watched."""

    per_s: float
    span_s: float


def line_of(points: Sequence[tuple[float, float]]) -> Line | None:
    """Through (seconds, bytes); None where there are not two moments."""
    count = len(points)
    if count < 2:
        return None
    mean_s = sum(at for at, _ in points) / count
    mean = sum(value for _, value in points) / count
    spread = sum((at - mean_s) ** 2 for at, _ in points)
    if spread <= 0:
        return None
    per_s = sum((at - mean_s) * (value - mean) for at, value in points) / spread
    off = math.sqrt(sum((value - mean - per_s * (at - mean_s)) ** 2 for at, value in points) / count)
    return Line(per_s, off)


def growth_of(points: Sequence[tuple[float, float]], policy: Policy = POLICY) -> Growth | None:
    """Of (seconds, bytes), oldest first; None where nothing grows steadily, or it was not watched for long enough."""
    if len(points) < policy.memory_samples or points[-1][0] - points[0][0] < policy.memory_span_s:
        return None
    half = len(points) // 2
    whole, older, newer = line_of(points), line_of(points[:half]), line_of(points[half:])
    if whole is None or older is None or newer is None:
        return None
    span_s = points[-1][0] - points[0][0]
    grown = whole.per_s * span_s
    is_line = grown >= policy.memory_least_bytes and whole.off <= policy.memory_off_share * grown
    goes_on = newer.per_s >= policy.memory_goes_on * max(older.per_s, whole.per_s)
    return Growth(min(newer.per_s, whole.per_s), span_s) if is_line and goes_on else None

"""Before against after: a difference with an interval and one word, from windows of the run itself.

Called by the fold after each block. It abstains ("not comparable") where the run has not shown its own noise
yet, and calls nothing faster or slower whose interval reaches into ±3 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .policy import POLICY, Policy
from .student import t_quantile
from .windows import Window

FASTER, SLOWER, NO_CHANGE, WITHIN_NOISE = "faster", "slower", "no_change", "within_noise"
SETTLING, NOT_COMPARABLE = "settling", "not_comparable"

WORDS = {
    FASTER: "faster",
    SLOWER: "slower",
    NO_CHANGE: "no change",
    WITHIN_NOISE: "within noise",
    SETTLING: "settling",
    NOT_COMPARABLE: "not comparable",
}
"""How each verdict is written for people, everywhere the same."""


@dataclass(frozen=True)
class Delta:
    """``delta_pct`` in percent of the before; ``interval_pct`` its 95 % prediction interval; None: not known.

    ``before_windows`` / ``after_windows`` say what it rests on.
    """

    verdict: str
    delta_pct: float | None = None
    interval_pct: tuple[float, float] | None = None
    before_windows: int = 0
    after_windows: int = 0


def compare(before: Sequence[Window], after: Sequence[Window], policy: Policy = POLICY) -> Delta:
    """The delta of ``after`` against ``before``: ``d ± t · s · sqrt(1/n + 1/m)`` on log samples per second.

    ``s`` is the spread of the n windows before, so the interval is as wide as this run is noisy.
    """
    n, m = len(before), len(after)
    if m == 0:
        return Delta(SETTLING, before_windows=n)
    rates = [[window.samples_per_s for window in side] for side in (before, after)]
    if n < policy.windows_before or not all(all(side) for side in rates):
        return Delta(NOT_COMPARABLE, before_windows=n, after_windows=m)
    logs_before, logs_after = ([math.log(value) for value in side if value] for side in rates)
    mean_before = sum(logs_before) / n
    difference = sum(logs_after) / m - mean_before
    spread = math.sqrt(sum((value - mean_before) ** 2 for value in logs_before) / (n - 1))
    reach = t_quantile(policy.confidence, n - 1) * spread * math.sqrt(1 / n + 1 / m)
    interval = (_percent(difference - reach), _percent(difference + reach))
    return Delta(_verdict(interval, policy.clear_pct), _percent(difference), interval, n, m)


def _percent(log_ratio: float) -> float:
    return (math.exp(log_ratio) - 1.0) * 100.0


def _verdict(interval: tuple[float, float], clear_pct: float) -> str:
    low, high = interval
    if low > clear_pct:
        return FASTER
    if high < -clear_pct:
        return SLOWER
    if low >= -clear_pct and high <= clear_pct:
        return NO_CHANGE
    return WITHIN_NOISE

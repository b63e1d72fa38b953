"""Every threshold of measuring and judging, in one frozen table. Read by analysis, fold and screen.

Nothing else in the program may hold such a number: a reader who doubts a verdict finds all of them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Policy:
    """Sources: measured on A/A runs; see the design's measuring notes (section 4).

    ``window_steps`` / ``window_s``: shortest window. ``window_capacities``: a window holds at least this many
    times the larger queue, so that batches made ahead cannot carry it. ``windows_before``: fewest windows before
    a change that allow an interval. ``windows_kept``: windows after the discard until a change counts as kept.
    ``discard_extra`` / ``discard_least``: steps thrown away after a change beyond the old workers' batches.
    ``stalled_long_s``: what takes long by its nature may, however quick the ones before it were.
    ``stalled_unknown_s``: so may anything before ten steps have told what is usual here, or while a change is applied.
    ``memory_warm_s``: not looked at, since everything is filled then; ``memory_span_s``, ``memory_samples``: so long,
    by so many samples, memory is watched at least. It grows by ``memory_least_bytes`` or more, lies off a straight line
    by ``memory_off_share`` of that at most, and in the newer half at ``memory_goes_on`` of the older one's rate or
    more: what fills up and stops does not. ``memory_ahead_s``: who has longer than a night is not warned.
    ``clear_pct``: an effect smaller than this is called no change. ``trim_share``: blocks dropped from a window.
    """

    window_steps: int = 20
    window_s: float = 2.0
    window_capacities: int = 3
    windows_before: int = 6
    windows_kept: int = 2
    windows_after_most: int = 30
    discard_extra: int = 2
    discard_least: int = 3
    clear_pct: float = 3.0
    confidence: float = 0.95
    trim_share: float = 0.10
    blocks_kept: int = 400
    memory_warm_s: float = 300.0
    memory_span_s: float = 600.0
    memory_samples: int = 12
    memory_least_bytes: float = 64e6
    memory_off_share: float = 0.2
    memory_goes_on: float = 0.5
    memory_ahead_s: float = 12 * 3600.0
    stalled_least_s: float = 10.0
    stalled_factor: float = 10.0
    stalled_unknown_s: float = 60.0
    stalled_long_s: Mapping[str, float] = field(default_factory=lambda: {"save": 60.0, "compile": 300.0})


POLICY = Policy()

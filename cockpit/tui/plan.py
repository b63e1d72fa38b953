"""Which parts of the screen a size has room for, and how tall each is. Pure arithmetic, called by the frame.

Rows 1–3 and the footer always stand; the rest is dropped from the bottom of the list as room shrinks. A part keeps
its place and height while the size stays, whatever the run does.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_WIDTH, LEAST_HEIGHT = 60, 16
KNOBS_WIDE = 38


@dataclass(frozen=True)
class Plan:
    """Heights in rows; 0: not shown. ``up``/``down``: the mirrored chart's halves. ``gaps``: blank rows between."""

    up: int = 0
    down: int = 0
    rate: int = 0
    bars: int = 0
    cores: bool = False
    loader: bool = False
    baseline: bool = False
    log: int = 0
    gaps: int = 0
    knobs: int = 0


def plan_for(width: int, height: int, knobs: int) -> Plan | None:
    """The plan for a size; None: one line is all there is room for. ``knobs``: rows of the knob list."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return None
    panel = knobs + 2
    left = height - 3 - 1 - panel
    up = down = rate = bars = log = gaps = 0
    cores = loader = baseline = False
    if left >= 5:
        up, down, left = 2, 2, left - 5
    if left >= 3:
        bars, left = 3, left - 3
    if left >= 1:
        cores, left = True, left - 1
    if left >= 1:
        log, left = 1, left - 1
    if left >= 2:
        up, down, left = 3, 3, left - 2
    if left >= 1:
        loader, left = True, left - 1
    # from here on more room means more of the same: air first, then taller charts
    if left >= 4:
        gaps, left = 4, left - 4
    if left >= 1:
        baseline, left = True, left - 1
    if left >= 4:
        rate, left = 4, left - 4
    while left >= 2 and up < 5:
        up, down, left = up + 1, down + 1, left - 2
    grow = min(left, 5)
    log, left = log + grow, left - grow
    while left >= 3 and up < 9:
        up, down, rate, left = up + 1, down + 1, rate + (1 if rate else 0), left - (3 if rate else 2)
    log += left
    return Plan(up, down, rate, bars, cores, loader, baseline, log, gaps, panel)

"""Which parts of the screen a size has room for, and how tall each is. Pure arithmetic, called by the frame.

Rows 1–3 and the footer always stand; the rest is dropped from the bottom of the list as room shrinks. A part keeps
its place and height while the size stays, whatever the run does.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_WIDTH, LEAST_HEIGHT = 60, 16
KNOBS_WIDE = 38
KNOBS_LEAST, KNOBS_BETTER = 5, 8
"""Rows of the knob list where room is short: it scrolls then, and charts, loader and output keep their place."""
LOG_GOOD = 4
"""Lines of output that say more than one more row of anything else."""
COLUMNS_FROM = 150
"""From this width on there are two columns."""
LABEL = 10
"""Columns left of charts and bars, for their names."""
TALLEST = 14
"""Rows of a chart's half beyond which more would only be longer, not clearer."""


@dataclass(frozen=True)
class Plan:
    """Heights in rows; 0: not shown. ``up``/``down``: the mirrored chart's halves. ``gaps``: blank rows between.

    ``knobs``: rows of the knob list with its header and the first of ``hint`` lines below. ``left``: columns of that
    list, or of the whole left column where there is a ``right`` one.
    """

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
    hint: int = 1
    left: int = KNOBS_WIDE
    right: int = 0


def plan_for(width: int, height: int, knobs: int) -> Plan | None:
    """The plan for a size; None: one line is all there is room for. ``knobs``: how many there are."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return None
    two = width >= COLUMNS_FROM
    panel = min(knobs, KNOBS_LEAST) + 2
    left = height - 3 - 1 - panel
    up = down = rate = bars = log = gaps = 0
    cores = loader = baseline = False
    hint = 1
    if left >= 5:
        up, down, left = 2, 2, left - 5
    if left >= 3:
        bars, left = 3, left - 3
    if left >= 1:
        cores, left = True, left - 1
    if left >= 1 and not two:
        log, left = 1, left - 1
    if left >= 2:
        up, down, left = 3, 3, left - 2
    if left >= 1:
        loader, left = True, left - 1
    grow = min(left, min(knobs, KNOBS_BETTER) + 2 - panel)
    panel, left = panel + grow, left - grow
    # from here on more room means air first, then more of the same
    gaps = min(left, 3 if two else 4)
    left -= gaps
    if left >= 1:
        baseline, left = True, left - 1
    if left >= 4:
        rate, left = 4, left - 4
    if left >= 2:
        up, down, left = up + 1, down + 1, left - 2
    if not two:
        grow = min(left, LOG_GOOD - log)
        log, left = log + grow, left - grow
    if left >= 1:
        hint, left = 2, left - 1
    grow = min(left, knobs + 2 - panel)
    panel, left = panel + grow, left - grow
    while left >= 2 and up < 5:
        up, down, left = up + 1, down + 1, left - 2
    while left >= 3 and up < TALLEST:
        up, down, rate, left = up + 1, down + 1, rate + 1, left - 3
    if not two:
        log, left = log + left, 0
    side = width * 9 // 20 if two else 0
    knobs_wide = KNOBS_WIDE if width >= 76 else width // 2 + 4
    list_wide = width - side - 3 if two else knobs_wide
    return Plan(up, down, rate, bars, cores, loader, baseline, log, gaps, panel, hint, list_wide, side)

"""Hand-offs that nobody asked for by number stay within their share of the time; whoever named one gets it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from cockpit.model.crash import HANDOFF_SHARE
from cockpit.probe.handoff.pace import Pace

SECOND = 1_000_000_000


def trained(pace: Pace, epochs: int, draw: random.Random, took_s: float) -> tuple[list[int], int, int]:
    """The epochs that ended with a hand-off, all that those took after the first, and the time until then."""
    now, spent, written = 12345 * SECOND, 0, []
    began = now
    for done in range(1, epochs + 1):
        now += int(draw.uniform(0.2, 3.0) * SECOND)
        if pace.is_due(done) and not pace.is_too_soon(now):
            took = int(took_s * draw.uniform(0.5, 1.0) * SECOND)
            now += took
            spent += took if written else 0
            written.append(done)
            pace.tried(took, now)
    return written, spent, now - began


@pytest.mark.parametrize("seed", range(8))
def test_all_but_the_first_stay_within_their_share(seed: int) -> None:
    draw, pace = random.Random(seed), Pace()
    pace.start({"handoff_every": 1, "handoff_sparing": True})
    took_s = draw.choice((0.001, 0.1, 2.0, 30.0))
    written, spent, whole = trained(pace, 600, draw, took_s)
    assert written[0] == 1, "a crash soon after the start loses least"
    # each waits for what the one before it has earned: none of them can have taken twice that
    assert spent <= 2 * HANDOFF_SHARE * whole
    if took_s == 0.001:
        assert written == list(range(1, 601)), "what is cheap is written at each end"
    gaps = [after - before for before, after in pairwise(written)]
    assert all(gap <= took_s / HANDOFF_SHARE / 0.2 + 1 for gap in gaps), "and they come again and again"


@pytest.mark.parametrize(("every", "due"), [(1, [1, 2, 3, 4, 5, 6]), (4, [4]), (0, []), (True, [1, 2, 3, 4, 5, 6])])
def test_whoever_names_a_number_gets_it_whatever_it_takes(every: int, due: list[int]) -> None:
    pace = Pace()
    pace.start({"handoff_every": every, "handoff_sparing": False})
    assert trained(pace, 6, random.Random(1), 100.0)[0] == due


@pytest.mark.parametrize("told", [{}, {"handoff_every": "7"}, {"handoff_every": -2, "handoff_sparing": True}])
def test_what_start_json_does_not_say_asks_for_nothing(told: dict[str, object]) -> None:
    pace = Pace()
    pace.start(told)
    assert trained(pace, 6, random.Random(1), 1.0)[0] == []

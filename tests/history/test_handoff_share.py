"""What hand-offs take stands in figures, and whoever pays dearly for them is told so, once he can help it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import beginning

from cockpit.cli.progress import Progress
from cockpit.cli.status import page
from cockpit.history import handoffs
from cockpit.history.fold import fold_all
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.crash import Crashed, HandoffSeen, Resumed, SessionSeen
from cockpit.model.events import TrainingEnded


def state_of(seconds: float, count: int = 3, sparing: bool = False, every: int = 1, spared: bool = False) -> State:
    """A run of a hundred seconds with so many hand-offs."""
    state = fold_all([*beginning(), SessionSeen(1001.0, ("model",), 90, every, sparing=sparing)])
    state = replace(state, started_s=1000.0)
    many = [HandoffSeen(1010.0 + at, at + 1, 40 * (at + 1), 10**9, seconds) for at in range(count)]
    return fold_all([*many, *([HandoffSeen(1090.0, 9, spared=True)] if spared else [])], state)


NOW_S = 1100.0


@pytest.mark.parametrize(
    ("seconds", "count", "more", "costly"),
    [
        (0.5, 3, {}, False),
        (3.0, 3, {}, True),
        (3.0, 1, {}, False),
        (3.0, 3, {"sparing": True}, False),
        (30.0, 3, {"every": 0}, False),
    ],
)
def test_told_as_dear_only_where_somebody_named_the_number(seconds, count, more, costly) -> None:
    state = state_of(seconds, count, **more)
    told = status_of(state, NOW_S)
    assert told["handoff"]["spent_s"] == seconds * count and told["handoff"]["written"] == count
    assert told["handoff"]["share"] == pytest.approx(seconds * count / 100.0)
    assert [found["kind"] for found in told["findings"]] == (["handoffs_costly"] if costly else [])
    progress = Progress()
    lines = [*progress.said(state, NOW_S), *progress.said(state, NOW_S + 1.0)]
    assert sum("of the run's time" in line for line in lines) == costly, "said once"
    everywhere = ["\n".join(page(state, NOW_S)), "\n".join(text_of(state, NOW_S))]
    assert all(f"{handoffs.percent(seconds * count / 100.0)} of the run's time" in text for text in everywhere)
    assert ("--handoff-every 1 asks for them" in everywhere[0]) == costly


def test_what_is_left_out_is_said_until_the_next_one_is_written() -> None:
    state = state_of(3.0, sparing=True, spared=True)
    said = [*page(state, NOW_S)[:8], *text_of(state, NOW_S)], Progress().said(state, NOW_S)
    for text in map("\n".join, said):
        assert "left out where they would take more than 3 % of the time" in text
    assert status_of(state, NOW_S)["handoff"]["spared"] is True
    assert status_of(state, NOW_S)["handoff"]["epoch"] == 3, "the newest is still what one can go on from"


def test_those_that_failed_took_their_time_too() -> None:
    state = fold_all([HandoffSeen(1050.0, seconds=2.0, reason="the disk is full")] * 2, state_of(1.0))
    assert "7.0 s, 7.0 % of the run's time, with 2 that failed" in (handoffs.words(state, NOW_S) or "")
    assert status_of(state, NOW_S)["handoff"]["failed"] == "the disk is full"


def test_neither_a_pause_nor_the_time_without_a_process_is_the_runs_and_none_is_nothing() -> None:
    paused = replace(state_of(3.0), paused_s=40.0)
    assert handoffs.share(paused, NOW_S) == pytest.approx(9.0 / 60.0)
    gone = Crashed(1070.0, exit_status=1, cause="RuntimeError")
    for ends in ([TrainingEnded(1070.0, 0)], [gone], [gone, TrainingEnded(1070.5, 1)]):
        ended = fold_all(ends, state_of(3.0))
        later = fold_all([Resumed(5000.0, "x", by_person=True)], ended)
        for state, now_s in ((ended, 5000.0), (later, 5000.0), (later, 5030.0)):
            lived_s = 70.0 + now_s - 5000.0
            assert handoffs.share(state, now_s) == pytest.approx(9.0 / lived_s, rel=0.01), (ends, now_s)
            assert handoffs.warning(state, now_s) is not None, "hours without a process make none of them cheap"
    none = fold_all(beginning())
    assert handoffs.share(none, NOW_S) is None and handoffs.words(none, NOW_S) is None
    assert status_of(none, NOW_S)["handoff"] is None and "and-offs" not in "\n".join(text_of(none, NOW_S))

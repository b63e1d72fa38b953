"""A run of several processes in words: whose figures the headline has, who is gone, and what the end leaves of it."""

from __future__ import annotations

from dataclasses import replace

from support.events import beginning, sample

from cockpit.cli.progress import GONE_S, Progress
from cockpit.cli.status import page
from cockpit.history import ranks
from cockpit.history.fold import fold, fold_all
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.events import ProbeConnected, TrainingEnded
from cockpit.model.ranks import RankInfo, RanksSeen

FIRST = RankInfo(0, 50, 40, wait_ms=1.25, samples_per_s=81.0)
SECOND = RankInfo(1, 51, 38)


def team(*found: RankInfo, world: int | None = None) -> State:
    return fold_all([*beginning(), sample(1009.0, step=40), RanksSeen(1010.0, found, world)])


def test_ranks_in_words() -> None:
    state = team(FIRST, SECOND)
    assert ranks.lines(state, 1012.0) == [
        "the run's figures are those of rank 0 of 2 (all ranks, as of 2 s ago)",
        "rank 0: step 40, waits 1.2 ms a step, 81 samples/s",
        "rank 1: step 38, waits – ms a step, – samples/s",
    ]
    assert [line for line in page(state, 1011.0) if "rank 1" in line] and "Ranks" in text_of(state, 1011.0)
    assert any("rank 0 of 2" in line for line in Progress().said(state, 1011.0))


def test_more_ranks_than_are_here() -> None:
    """Of four, two run on another machine."""
    assert ranks.headline(team(FIRST, SECOND, world=4)) == "rank 0 of 4"
    assert ranks.several(fold(team(FIRST), ProbeConnected(1011.0, 50, "2", "3", rank=0, world=2)))


def test_one_alone_has_no_words() -> None:
    state = team(FIRST)
    assert (ranks.lines(state, 1012.0), ranks.headline(state), ranks.several(state)) == ([], None, False)
    (row,) = status_of(state, 1011.0)["ranks"]
    assert (row["step"], row["pid"]) == (40, 50)
    assert "Ranks" not in text_of(state, 1011.0)


def test_a_rank_that_is_gone_is_told_once_and_not_where_all_go() -> None:
    left = team(FIRST, replace(SECOND, alive=False))
    progress = Progress()
    assert not any("gone" in line for line in progress.said(left, 1011.0)), "the end of a run looks like this too"
    later = progress.said(left, 1011.0 + GONE_S)
    assert [line.split("] ")[1] for line in later if "gone" in line] == ["rank 1 is gone, at step 38"]
    assert not any("gone" in line for line in progress.said(left, 1012.0 + GONE_S))
    assert ranks.lines(left, 1012.0)[-1] == "rank 1: gone, at step 38"
    over = Progress()
    nobody = team(replace(FIRST, alive=False), replace(SECOND, alive=False))
    assert not any("gone" in line for at_s in (1011.0, 1031.0) for line in over.said(nobody, at_s))


def test_after_the_end_only_how_far_each_came() -> None:
    last = sample(1011.0, step=38)  # the second outlived the first by a moment, and led
    state = fold_all([last, TrainingEnded(1012.0, 0)], team(FIRST, SECOND))
    assert state.step == 40
    told = status_of(state, 1013.0)
    assert [(rank["step"], rank["wait_ms"], rank["samples_per_s"], rank["alive"]) for rank in told["ranks"]] == [
        (40, None, None, False),
        (38, None, None, False),
    ]
    assert ranks.lines(state, 1012.0)[1:] == ["rank 0: 40 steps", "rank 1: 38 steps"]
    assert told["figures_of"] == "rank 0 of 2" and not ranks.several(state)

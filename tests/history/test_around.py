"""A figure that others may have caused stands beside a sentence that says so; one that they cannot have, alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.events import NOISY, Story, beginning

from cockpit.history.around import MEMORY_S, flags, foreign
from cockpit.history.fold import fold, fold_all
from cockpit.history.report import best_words, delta_words, trial_line
from cockpit.history.state import Around, Entry, State
from cockpit.history.status import ledger_line
from cockpit.history.trials import entry_of
from cockpit.model.events import MachineSeen, Sampled
from cockpit.model.gpu import GpuFigures, GpuSampled
from cockpit.tui.head import change_row, mark_of
from cockpit.tui.rows import text_of
from cockpit.tui.tried import lines_of
from cockpit.tui.view import View

CORES = 4
LOAD = "other programs used {:.1f} cores before it and {:.1f} after"


def machine() -> MachineSeen:
    return MachineSeen(0.0, cpus_usable=float(CORES), cpus_limited_by="cores")


def samples(at_s: float, mine: float, theirs: float, throttled: bool | None = None) -> list[object]:
    """Five seconds of them."""
    each = (mine + theirs) / CORES
    found: list[object] = [
        Sampled(at_s + n / 2, 0.5, cpu_main=mine, cpu_workers=0.0, cpu_others=0.0, cores_busy=(each,) * CORES)
        for n in range(10)
    ]
    reasons = None if throttled is None else ("power",) if throttled else ()
    return [*found, *(GpuSampled(at_s + n, (GpuFigures("GPU-1", throttled=reasons),)) for n in range(5))]


def trial(before: tuple[float, float], after: tuple[float, float], hot: tuple[bool, bool] | None = None) -> State:
    """A change that doubles the rate, with (cores of ours, of others) on each side of it."""
    story = Story()
    state = fold_all([*beginning(), machine(), *story.blocks([50.0, *NOISY])])
    state = fold_all(samples(story.at_s, *before, None if hot is None else hot[0]), state)
    moved = story.moved("c1", "settling", before={"num_workers": 0}, in_force={"num_workers": 2}, capacity=4)
    state = fold_all([story.asked("c1", {"num_workers": 2}), moved, *story.blocks([200.0, 200.0])], state)
    state = fold_all(samples(story.at_s, *after, None if hot is None else hot[1]), state)
    return fold_all(story.blocks([202.0, 201.0]), state)


def entry(state: State) -> Entry:
    found = entry_of(state, "c1")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("before", "after", "hot", "said"),
    [
        pytest.param((1.0, 0.1), (1.0, 0.1), None, [], id="alone"),
        pytest.param((1.0, 3.0), (3.9, 0.1), None, [LOAD.format(3.0, 0.1)], id="left"),
        pytest.param((3.9, 0.1), (2.0, 2.0), None, [LOAD.format(0.1, 2.0)], id="came"),
        pytest.param((1.0, 0.1), (1.0, 1.5), None, [], id="room-for-all"),
        pytest.param((1.0, 3.0), (1.0, 3.0), None, [], id="as-much-on-both-sides"),
        pytest.param((1.0, 0.1), (4.0, 0.0), None, [], id="our-own-workers"),
        pytest.param(
            (1.0, 0.0), (1.0, 0.0), (True, False),
            ["the accelerator was held back 100 % of the time before it and 0 % after"], id="throttled",
        ),
        pytest.param((1.0, 0.0), (1.0, 0.0), (True, True), [], id="throttled-on-both-sides"),
    ],
)  # fmt: skip
def test_what_changed_around_a_change_is_said_beside_its_figure(
    before: tuple[float, float], after: tuple[float, float], hot: tuple[bool, bool] | None, said: list[str]
) -> None:
    state = trial(before, after, hot)
    found = entry(state)
    assert (found.state, found.verdict) == ("kept", "faster"), "the figure stands: nobody knows how much is whose"
    assert ledger_line(found)["flags"] == said
    view = View(state, "run", state.at_s, 120, 40)
    row, whole = text_of([change_row(view, 120)]), text_of(lines_of(view, 200))
    for flag in said:
        assert f"but {flag}" in whole
        for told in (trial_line(found), delta_words(found), best_words(state, found)):
            assert told.count(f", but {flag}") == 1, "beside the figure wherever it is told"
    assert ("changed" in row) == bool(said)
    assert (mark_of(found, view)[1] == "dim") == bool(said), "no colour for what may be others' doing"


def test_where_a_quota_counts_others_work_is_no_load() -> None:
    event = Sampled(0.0, 0.5, cpu_main=1.0, cores_busy=(1.0,) * 8)
    assert foreign(event, 2.0) is None and foreign(event, 8.0) == pytest.approx(7.0)
    assert foreign(replace(event, cpu_unseen=True), 8.0) is None, "workers of a short epoch are no other programs"
    assert foreign(replace(event, cpu_main=None), 8.0) is None and foreign(replace(event, cores_busy=()), 8.0) is None


@given(some.lists(some.floats(0.0, 4.0), min_size=1, max_size=600))
def test_means_are_of_what_came_last_and_never_outside_of_it(loads: list[float]) -> None:
    story = Story()
    state = fold_all([*beginning(), machine(), *story.blocks([50.0, 100.0])])
    for n, load in enumerate(loads):
        state = fold(state, Sampled(story.at_s + n, 1.0, cpu_main=0.0, cores_busy=(load / CORES,) * CORES))
    around = state.current.around
    assert min(loads) - 1e-9 <= around.cores <= max(loads) + 1e-9
    assert around.seconds <= MEMORY_S + 1.0


def test_nothing_is_said_of_what_was_not_looked_at() -> None:
    assert flags(Around(), Around(60.0, 4.0, 1.0, CORES, 30, 1.0)) == ()

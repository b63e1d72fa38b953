"""Charts as strings: what is drawn follows the numbers, gaps stay gaps, and changes stand where they landed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.history.state import Entry, Point, Ring
from cockpit.tui.chart import Mark, area, axis_row, round_up, with_marks
from cockpit.tui.glyphs import ASCII, BLOCK, BRAILLE, SETS, Glyphs
from cockpit.tui.rows import text_of
from cockpit.tui.series import Axis, columns, landed

VALUES = st.lists(st.one_of(st.none(), st.floats()), min_size=2, max_size=80).filter(lambda found: len(found) % 2 == 0)


def test_braille_up_and_down() -> None:
    values = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert area(values, 2, BRAILLE) == [" ⢠⣿", "⢠⣿⣿"]
    assert area(values, 2, BRAILLE, down=True) == ["⠘⣿⣿", " ⠘⣿"]


def test_block_and_ascii() -> None:
    assert area([0.0, 0.5, 0.75, 1.0], 2, BLOCK) == ["  ▄█", " ███"]
    assert area([0.0, 0.5, 0.75, 1.0], 2, BLOCK, down=True) == [" ███", "  ▀█"]
    assert area([0.0, 0.5, 1.0, 1.0], 1, ASCII) == [" :##"]


def test_a_gap_is_blank_and_the_smallest_measured_value_shows() -> None:
    assert area([None, None, 1e-6, 1e-6], 1, BRAILLE) == [" ⣀"]


@given(VALUES, st.integers(1, 9), st.sampled_from(list(SETS.values())), st.booleans())
def test_any_numbers_give_rows_of_one_width(
    values: list[float | None], height: int, glyphs: Glyphs, down: bool
) -> None:
    rows = area(values, height, glyphs, down)
    assert len(rows) == height
    assert {len(row) for row in rows} == {len(values) // glyphs.columns}


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.integers(1, 9), st.sampled_from(list(SETS.values())))
def test_more_is_never_drawn_smaller(a: float, b: float, height: int, glyphs: Glyphs) -> None:
    def ink(value: float) -> int:
        return sum(glyphs.up.index(row[0]) for row in area([value] * 2, height, glyphs))

    if a <= b:
        assert ink(a) <= ink(b)


def test_the_axis_breaks_where_nothing_was_measured_and_carries_the_changes() -> None:
    marks = [Mark(4, "workers 0→4", "bold better"), Mark(9, "pin on", "bold text")]
    row = axis_row([False, False, *[True] * 22], marks, BRAILLE)
    assert text_of([row]) == "╌╌──◆wo… ◆pin on ───────"
    assert text_of([axis_row([True] * 5, [Mark(3, "long words", "x")], BRAILLE)]) == "───◆─"


def test_a_change_crosses_only_empty_cells() -> None:
    marks = [Mark(1, "", "better"), Mark(3, "", "better")]
    runs = [run for run in with_marks("  ⣿⣿ ", "model", marks, BRAILLE) if run[0]]
    assert runs == [(" ", "model"), ("┊", "better"), ("⣿⣿ ", "model")]


@pytest.mark.parametrize(("value", "top"), [(0.0, 0.0), (1.0, 1.0), (318.0, 500.0), (1005.0, 1500.0), (9.0, 10.0)])
def test_a_scale_moves_in_round_steps(value: float, top: float) -> None:
    assert round_up(value) == pytest.approx(top)


def points(*at_s: float, width_s: float = 0.5) -> Ring:
    return Ring(width_s, 400, tuple(Point(at, 1, model=at % 1.0, cpu=1.0) for at in at_s))


def test_columns_are_means_on_a_fixed_grid() -> None:
    axis = Axis(end_s=105.9, count=4, column_s=1.0, per_cell=2)
    assert axis.first == 100, "the cell that is still filling is not drawn"
    laid = columns([points(100.0, 100.5, 101.0, 103.5, 104.5)], axis)
    assert [column.model for column in laid] == [0.25, 0.0, 0.0, 0.5], "a single hole is jitter, not a gap"
    later = Axis(end_s=106.0, count=4, column_s=1.0, per_cell=2)
    assert later.first == 102, "it moves by whole cells"


def test_a_longer_silence_is_a_gap() -> None:
    axis = Axis(end_s=108.5, count=8, column_s=1.0)
    laid = columns([points(100.0, 101.0, 105.0, 106.0, 107.0)], axis)
    assert [column.model is None for column in laid] == [False, False, True, True, True, False, False, False]


def test_the_past_comes_from_the_coarser_ring_and_never_hides_the_finer() -> None:
    coarse = Ring(5.0, 400, (Point(90.0, 10, model=0.9), Point(95.0, 10, model=0.9), Point(100.0, 10, model=0.9)))
    laid = columns([points(100.0, 101.0, 102.0, 103.0), coarse], Axis(104.5, 14, 1.0))
    assert [column.model for column in laid[:10]] == [0.9] * 10
    assert [column.model for column in laid[10:]] == [0.0] * 4


def test_changes_are_placed_where_they_came_into_force() -> None:
    ledger = [
        Entry("a", {"num_workers": 2}, 100.0, landed_s=101.2, state="kept"),
        Entry("b", {"num_workers": 4}, 101.0, state="queued"),
        Entry("c", {"num_workers": 8}, 102.0, state="rolled_back", state_s=103.0),
        Entry("d", {"num_workers": 1}, 10.0, landed_s=11.0, state="kept"),
    ]
    assert [(at, entry.id) for at, entry in landed(ledger, Axis(104.5, 4, 1.0))] == [(1, "a"), (3, "c")]
    assert [(at, entry.id) for at, entry in landed(ledger, Axis(103.5, 4, 1.0))] == [(2, "a"), (3, "c")], "at once"

"""Windows are long enough, whole, and trimmed by whole blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.events import block

from cockpit.analysis.policy import POLICY
from cockpit.analysis.windows import Length, Window, length_for, rate, windows

shapes = some.lists(some.tuples(some.integers(10, 60), some.floats(5.0, 5000.0)), max_size=60)


@settings(deadline=None)
@given(shapes, some.integers(0, 30))
def test_every_window_is_at_least_as_long_as_its_length(made: list[tuple[int, float]], capacity: int) -> None:
    blocks = [block(0.0, 0, per_s, steps=steps) for steps, per_s in made]
    length = length_for(capacity)
    found = windows(blocks, length)
    assert sum(window.steps for window in found) <= sum(one.steps for one in blocks)
    untrimmed = windows(blocks, length, type(POLICY)(trim_share=0.0))
    assert all(w.steps >= length.steps and w.wall_s >= length.wall_s for w in untrimmed)
    assert len(found) == len(untrimmed)


def test_a_queue_of_ready_batches_cannot_carry_a_window() -> None:
    assert length_for(0) == Length(20, 2.0)
    assert length_for(16) == Length(48, 2.0)


def test_a_short_rest_is_left_out() -> None:
    assert windows([block(0.0, 0, 100.0, steps=10)], length_for(0)) == ()


def test_trimming_drops_the_slowest_whole_blocks_never_steps() -> None:
    blocks = [block(0.0, 0, 100.0, steps=10, batch=2) for _ in range(9)] + [block(0.0, 0, 5.0, steps=10, batch=2)]
    (window,) = windows(blocks, Length(100, 2.0))
    assert window.steps == 90 and window.samples_per_s == pytest.approx(100.0)


def test_samples_that_were_not_counted_give_no_rate() -> None:
    from dataclasses import replace

    blocks = [replace(block(0.0, 0, 100.0), samples=None), block(0.0, 0, 100.0)]
    (window,) = windows(blocks, Length(40, 2.0))
    assert window.samples is None and window.samples_per_s is None and rate([window]) is None


def test_the_mean_is_the_one_that_is_compared() -> None:
    assert rate([Window(1, 100, 1.0), Window(1, 400, 1.0)]) == pytest.approx(200.0)
    assert rate([]) is None

"""Whether an epoch's end is in sight: nobody is promised a boundary that will not come."""

from __future__ import annotations

from typing import Any

import pytest
from support.events import Story, beginning, loader, sample

from cockpit.history.boundary import boundary_in_s, is_out_of_sight
from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.model.events import LoadersSeen


def seen(**more: Any) -> State:
    story = Story()
    events = [*beginning(), *story.blocks([50.0] * 4), sample(story.at_s, step=story.step, step_in_epoch=10)]
    return fold_all([*events, LoadersSeen(story.at_s, (loader(**more),))])


@pytest.mark.parametrize(
    ("told", "out_of_sight"),
    [
        ({"steps_per_epoch": 100}, False),
        ({"steps_per_epoch": 312_500_000}, True),
        ({"steps_per_epoch": None}, True),
        ({"steps_per_epoch": None, "boundaries": True}, False),
    ],
)
def test_with_a_loader(told: dict[str, Any], out_of_sight: bool) -> None:
    assert is_out_of_sight(seen(**told)) is out_of_sight


def test_how_long_it_takes() -> None:
    assert (boundary_in_s(seen(steps_per_epoch=100)) or 0) > 0 and boundary_in_s(seen()) is None


@pytest.mark.parametrize("step_in_epoch", [100, 101])
def test_what_is_over_ends_in_nobody_knows_how_long(step_in_epoch: int) -> None:
    """A validation may follow: the next epoch begins after it."""
    over = fold_all([sample(1010.0, step_in_epoch=step_in_epoch)], seen(steps_per_epoch=100))
    assert boundary_in_s(over) is None and not is_out_of_sight(over)


def test_without_a_loader_once_it_trains() -> None:
    assert not is_out_of_sight(fold_all(beginning()))
    assert is_out_of_sight(fold_all([*beginning(), sample(1002.0, step=7)]))

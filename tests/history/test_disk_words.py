"""A disk that runs full under a run's output: said while it runs, and named where that may be what ended it."""

from __future__ import annotations

import pytest
from support.events import beginning

from cockpit.history.fold import fold_all
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.disk import DiskSeen
from cockpit.model.events import TrainingEnded


def run(free: int | None, *more: object) -> State:
    return fold_all([*beginning(), DiskSeen(9.0, free), *more])


@pytest.mark.parametrize(("free", "kind"), [(20 * 2**20, "disk_low"), (4096, "disk_full")])
def test_while_it_runs(free: int, kind: str) -> None:
    state = run(free)
    (found,) = status_of(state, 10.0)["findings"]
    assert (found["kind"], found["severity"], found["evidence"]) == (kind, "high", {"free_bytes": free})
    assert any(line.startswith("Its disk: only ") and "its own prints fail" in line for line in text_of(state, 10.0))


def test_once_there_is_room_again_nothing_is_said() -> None:
    state = run(4096, DiskSeen(10.0, None))
    assert status_of(state, 10.0)["findings"] == [] and "Its disk" not in "\n".join(text_of(state, 10.0))


@pytest.mark.parametrize(
    ("free", "status", "named"), [(4096, 1, True), (4096, 0, False), (20 * 2**20, 1, False), (None, 1, False)]
)
def test_at_the_end_it_is_named_only_where_it_may_be_the_reason(free: int | None, status: int, named: bool) -> None:
    state = run(free, TrainingEnded(10.0, status))
    assert ("was full (0.0 MiB left)" in "\n".join(text_of(state, 10.0))) is named

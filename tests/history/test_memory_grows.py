"""Memory that grows until none is left: told hours before, with how fast; and silence for all that only looks so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.events import BEGAN_S, beginning, block, loader

from cockpit.cli.status import page
from cockpit.history import memory
from cockpit.history.fold import fold, fold_all
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.events import ChangeAsked, ChangeMoved, EpochEnded, LoadersSeen, TrainingEnded
from cockpit.model.memory import MemorySeen

HOUR_S, GB = 3600.0, 10**9


def after(
    held: Callable[[float], float],
    hours: float = 2.0,
    epoch_s: float = 600.0,
    left: float | None = 4 * GB,
    state: State | None = None,
    since_s: float = BEGAN_S,
) -> State:
    """A run whose processes hold ``held(seconds)`` bytes, with an epoch each ``epoch_s``."""
    state = state or fold_all([*beginning(), LoadersSeen(BEGAN_S + 2, (loader(),))])
    for at in range(30, int(hours * HOUR_S), 30):
        if at % epoch_s == 0:
            state = fold(state, EpochEnded(since_s + at, "train.py:41", int(at // epoch_s), 100, 800, epoch_s, 5.0))
        size = int(held(at))
        state = fold(state, MemorySeen(since_s + at, size, size // 2, None if left is None else int(left)))
    return state


def leaking(seconds: float) -> float:
    return 2 * GB + GB * seconds / HOUR_S


def test_a_leak_is_told_with_its_rate_and_when_nothing_is_left() -> None:
    state = after(leaking)
    (found,) = status_of(state, state.at_s)["findings"]
    assert found["kind"] == "memory_grows" and found["evidence"]["full_in_s"] == pytest.approx(4 * HOUR_S, rel=0.01)
    assert found["evidence"]["bytes_per_h"] == pytest.approx(GB, rel=0.01) and found["knob"] is None
    said = memory.words(state)
    assert said and said.startswith("memory grows by 1.0 GB an hour; 4.0 GB are left, gone in")
    assert any(said in line for line in text_of(state, state.at_s))
    assert any(said in line for line in page(state, state.at_s))
    assert len(state.memory) <= memory.LONGEST


@pytest.mark.parametrize(
    ("held", "more"),
    [
        pytest.param(lambda s: 2 * GB, {}, id="flat"),
        pytest.param(lambda s: 2 * GB + 3e7 * math.sin(s), {}, id="noise"),
        pytest.param(lambda s: 2 * GB + 4 * GB * min(1.0, s / 500), {"hours": 1.0}, id="a cache of the first epoch"),
        pytest.param(lambda s: 2 * GB + 4 * GB * (1 - math.exp(-s / 1500)), {}, id="what levels off"),
        pytest.param(lambda s: 2 * GB + 1e6 * (s % 600), {}, id="each epoch anew"),
        pytest.param(lambda s: 2 * GB + 1e6 * (s % 5400), {"epoch_s": 5400.0, "hours": 4.2}, id="in long epochs"),
        pytest.param(leaking, {"epoch_s": 1e9}, id="an epoch whose end nobody knows"),
        pytest.param(leaking, {"hours": 0.2}, id="too short a time"),
        pytest.param(leaking, {"left": 20 * GB}, id="longer than a night"),
        pytest.param(leaking, {"left": None}, id="nobody tells what is left"),
    ],
)
def test_it_does_not_cry_wolf(held: Callable[[float], float], more: dict[str, float]) -> None:
    state = after(held, **more)
    assert memory.words(state) is None and status_of(state, state.at_s)["findings"] == []


def test_another_setting_begins_anew() -> None:
    state = after(leaking)
    at_s = state.at_s
    asked = ChangeAsked(at_s + 1, "c1", {"num_workers": 0})
    moved = [ChangeMoved(at_s + 1 + n, "c1", name) for n, name in enumerate(("queued", "applying", "settling"))]
    state = fold_all([asked, *moved, block(at_s + 9, 10, change="c1")], state)
    landed = fold(state, MemorySeen(at_s + 60, 9 * GB, 0, 4 * GB))
    assert len(landed.memory) == 1 and memory.words(landed) is None
    assert memory.words(after(lambda s: 9 * GB, state=landed, since_s=at_s + 60)) is None
    assert memory.words(after(leaking, state=landed, since_s=at_s + 60)) is not None


def test_it_is_the_workers_where_most_of_it_is_theirs() -> None:
    state = after(leaking)
    state = fold(state, MemorySeen(state.at_s + 30, 4 * GB, 3 * GB, 4 * GB))
    assert "in the loader's workers" in (memory.words(state) or "")


def test_the_newest_figures_stand_under_machine() -> None:
    state = fold_all([*beginning(), MemorySeen(BEGAN_S + 30, 7, 3, 5, 0)])
    machine = status_of(state, state.at_s)["machine"]
    assert [machine[f"{name}_bytes"] for name in ("memory_used", "memory_left", "shm_free")] == [7, 5, 0]
    machine = status_of(fold_all(beginning()), BEGAN_S)["machine"]
    assert [machine[f"{name}_bytes"] for name in ("memory_used", "memory_left", "shm_free")] == [None] * 3


def test_a_sample_ages_and_what_has_ended_holds_nothing() -> None:
    state = after(leaking)
    later = replace(state, at_s=state.at_s + 2 * HOUR_S)
    said = status_of(later, later.at_s)["findings"][0]["evidence"]["full_in_s"]
    assert said == pytest.approx(2 * HOUR_S, rel=0.02)
    assert memory.words(replace(state, at_s=state.at_s + 5 * HOUR_S)) is None, "it would be full, and is not"
    ended = fold(state, TrainingEnded(state.at_s, 0))
    assert status_of(ended, ended.at_s)["machine"]["memory_used_bytes"] is None and memory.words(ended) is None

"""Over random sequences of changes, a deterministic dataset serves what a bare run serves, bit for bit.

Each example runs one scene bare and once more with random changes at boundaries and in the middle of epochs, with
real workers, and compares batches, the loop's own draws and the final state of every generator.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe import swap_scenes as scenes
from probe.swap_harness import Harness

GROUPS = st.fixed_dictionaries(
    {"num_workers": st.integers(0, 4)},
    optional={"prefetch_factor": st.integers(1, 4), "persistent_workers": st.booleans()},
).map(lambda asked: asked if asked["num_workers"] else {"num_workers": 0})
SCRIPT = st.builds(scenes.settings, workers=st.integers(0, 2), prefetch=st.integers(1, 3), persistent=st.booleans())
BOUNDARIES = st.dictionaries(st.integers(0, scenes.EPOCHS - 1), GROUPS, max_size=2)
NOW = st.dictionaries(st.tuples(st.integers(0, scenes.EPOCHS - 1), st.integers(0, 9)), GROUPS, max_size=3)
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def bare(scene: Any, script: dict[str, Any]) -> scenes.Outcome:
    scenes.seed_everything()
    return scene(**script)  # type: ignore[no-any-return]


def changed(scene: Any, script: dict[str, Any], boundary: Any, now: Any) -> tuple[scenes.Outcome, Harness]:
    scenes.seed_everything()
    with Harness(boundary, now) as harness:
        return scene(**script), harness


def check_equal(name: str, script: dict[str, Any], boundary: Any, now: Any) -> Harness:
    scene = scenes.SCENES[name]
    expected = bare(scene, script)
    outcome, harness = changed(scene, script, boundary, now)
    assert outcome.epochs == expected.epochs
    assert outcome.drawn == expected.drawn
    assert outcome.states == expected.states
    assert not harness.notices
    return harness


# ---- one of each kind, always ----------------------------------------------------------------------------------

RISE_AND_FALL: tuple[dict[Any, Any], dict[Any, Any]] = (
    {1: {"num_workers": 1}},
    {
        (0, 2): {"num_workers": 2},
        (1, 4): {"num_workers": 0},
        (2, 1): {"num_workers": 1, "prefetch_factor": 1},
    },
)


@pytest.mark.parametrize("name", sorted(scenes.SCENES))
def test_without_workers_rising_and_falling(name: str) -> None:
    harness = check_equal(name, scenes.settings(0, 0, False), *RISE_AND_FALL)
    assert harness.swaps


@pytest.mark.parametrize("name", ["plain", "shared_generator", "eager_batches", "distributed", "leaves_early"])
def test_with_workers_changed_both_ways(name: str) -> None:
    now = {(0, 2): {"num_workers": 0}, (1, 3): {"num_workers": 1}}
    check_equal(name, scenes.settings(2, 1, False), {2: {"num_workers": 0}}, now)


@pytest.mark.parametrize("name", ["plain", "shared_generator", "eager_batches", "distributed"])
def test_persistent_workers_over_several_epochs(name: str) -> None:
    script = scenes.settings(1, 2, True)
    check_equal(name, script, {1: {"num_workers": 2}, 2: {"num_workers": 1}}, {})
    check_equal(name, script, {1: {"num_workers": "script"}}, {(0, 3): {"num_workers": 2}})


def test_a_batch_sampler_that_reuses_its_list() -> None:
    expected = bare(scenes.one_list, {})
    outcome, harness = changed(scenes.one_list, {}, *RISE_AND_FALL)
    assert outcome == expected and len(harness.swaps) == 3


@pytest.mark.parametrize("leave_at", [None, 3])
def test_fewer_workers_read_the_sampler_when_the_script_would(leave_at: int | None) -> None:
    def scene(**kw: Any) -> scenes.Outcome:
        return scenes.lazy_global(leave_at, **kw)

    script = scenes.settings(2, 3, False)
    expected = bare(scene, script)
    now = {(0, 2): {"num_workers": 0}, (2, 1): {"num_workers": 1, "prefetch_factor": 2}}
    outcome, harness = changed(scene, script, {1: {"num_workers": 1, "prefetch_factor": 4}}, now)
    assert outcome == expected and len(harness.swaps) == 2


# ---- the volume ------------------------------------------------------------------------------------------------


@settings(max_examples=5, derandomize=True, **QUIET)
@given(name=st.sampled_from(sorted(scenes.SCENES)), script=SCRIPT, boundary=BOUNDARIES, now=NOW)
def test_random_changes(name: str, script: Any, boundary: Any, now: Any) -> None:
    _random_example(name, script, boundary, now)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=250, **QUIET)
@given(name=st.sampled_from(sorted(scenes.SCENES)), script=SCRIPT, boundary=BOUNDARIES, now=NOW)
def test_many_random_changes(name: str, script: Any, boundary: Any, now: Any) -> None:
    _random_example(name, script, boundary, now)


def _random_example(name: str, script: Any, boundary: Any, now: Any) -> None:
    check_equal(name, script, boundary, now)


@settings(max_examples=3, derandomize=True, **QUIET)
@given(script=SCRIPT, boundary=BOUNDARIES, now=NOW)
def test_out_of_order_serves_each_index_once(script: Any, boundary: Any, now: Any) -> None:
    _out_of_order_example(script, boundary, now)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=60, **QUIET)
@given(script=SCRIPT, boundary=BOUNDARIES, now=NOW)
def test_out_of_order_serves_each_index_once_many(script: Any, boundary: Any, now: Any) -> None:
    _out_of_order_example(script, boundary, now)


def _out_of_order_example(script: Any, boundary: Any, now: Any) -> None:
    def free(asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "in_order": False} if asked["num_workers"] else asked

    outcome, harness = changed(
        scenes.ragged,
        script,
        {e: free(g) for e, g in boundary.items()},
        {at: free(g) for at, g in now.items()},
    )
    expected = bare(scenes.ragged, script)
    for mine, theirs in zip(outcome.indices(), expected.indices(), strict=True):
        assert Counter(mine) == Counter(theirs) and len(set(mine)) == scenes.SIZE
    assert outcome.states == expected.states
    assert not harness.notices


# ---- random datasets -------------------------------------------------------------------------------------------


def noisy_run(script: dict[str, Any], boundary: Any, now: Any) -> tuple[scenes.Outcome, Harness]:
    def scene(**kw: Any) -> scenes.Outcome:
        return scenes.train(scenes.DataLoader(scenes.Noisy(), batch_size=scenes.BATCH, shuffle=True, **kw))

    return changed(scene, script, boundary, now)


@pytest.mark.parametrize("persistent", [False, True])
def test_no_augmentation_is_drawn_twice(persistent: bool) -> None:
    script = scenes.settings(2, 2, persistent)
    now = {
        (0, 2): {"num_workers": 1},
        (0, 7): {"num_workers": 2},
        (1, 3): {"num_workers": 3},
        (2, 1): {"num_workers": 1},
    }
    outcome, harness = noisy_run(script, {2: {"num_workers": 2, "prefetch_factor": 1}}, now)
    rows = [row for epoch in outcome.epochs for batch in epoch for row in batch]
    assert len(harness.swaps) == 4
    for draw in (2, 3, 4):
        assert len({row[draw] for row in rows}) == len(rows)
    assert len({row[1] for row in rows}) >= 2 + 1 + 2 + 3


def test_workers_from_the_boundary_equal_a_bare_run_with_them() -> None:
    """What a boundary change to N workers serves is what the same script with N workers would have served."""
    bare_outcome, _ = noisy_run(scenes.settings(2, 2, False), {}, {})
    outcome, _ = noisy_run(scenes.settings(2, 1, False), {0: {"prefetch_factor": 2}}, {})
    assert outcome == bare_outcome

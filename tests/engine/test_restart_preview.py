"""What a restart would come to, before it is asked for: the word that would be said, and no value that nobody gave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_restart_plan import STANDING, STATE

from cockpit.engine import preload
from cockpit.engine.next_life import leave_s_of
from cockpit.engine.restart_preview import preview
from cockpit.model.environment import AS_BEGAN


def test_the_reason_is_the_one_that_asking_would_give() -> None:
    assert preview(STATE, STANDING, {"OMP_NUM_THREADS": "4"}, "/ours")["reason"] is None
    assert preview(STATE, STANDING, {"OMP_NUM_THREADS": "1"}, "/ours")["reason"] == "OMP_NUM_THREADS is 1 already"
    without = preview(STATE, replace(STANDING, session=None, environ=None), {}, "/ours")
    assert "96 steps, 5 min 00 s of training, would be lost" in without["reason"] and without["values"] == {}


def test_values_are_those_of_the_table_and_what_was_given() -> None:
    environ = {"OMP_NUM_THREADS": "2", "TOKEN": "s3cret", "MINE": "7", "PYTHONPATH": "/ours"}
    state = replace(STATE, environment={"MINE": (AS_BEGAN, "7")})
    told = preview(state, replace(STANDING, environ=environ), {"TOKEN": "x"}, "/ours")
    assert told["values"]["OMP_NUM_THREADS"] == "2" and told["values"]["MINE"] == "7"
    assert told["values"]["TOKEN"] == AS_BEGAN and told["values"]["LD_PRELOAD"] is None
    assert "PYTHONPATH" not in told["values"] and told["names"] == ["model"]


def test_a_library_that_would_be_passed_over_is_told_of_first() -> None:
    assert preload.why_not({"LD_PRELOAD": "libc.so.6"}, {}) is None and preload.why_not({}, {}) is None
    told = preview(STATE, STANDING, {"LD_PRELOAD": "/no/such.so"}, "/ours")["reason"]
    assert "/no/such.so" in told and "cannot be preloaded" in told


@pytest.mark.parametrize(
    ("facts", "leave_s"), [({}, 30.0), ({"grace_s": 5.0}, 30.0), ({"grace_s": 300}, 300.0), ({"grace_s": None}, 30.0)]
)
def test_who_hands_over_has_the_time_to_end_that_a_stop_would_give(facts: dict[str, Any], leave_s: float) -> None:
    assert leave_s_of(facts) == leave_s


@pytest.mark.parametrize(
    ("was", "asked", "other"),
    [(None, {}, True), ("random", {}, True), ("0", {}, False), ("0", {"PYTHONHASHSEED": "1"}, True)],
)
def test_another_order_of_sets_is_told_of_first(was: str | None, asked: dict[str, str], other: bool) -> None:
    environ = {} if was is None else {"PYTHONHASHSEED": was}
    assert preview(STATE, replace(STANDING, environ=environ), asked, "/ours")["other_hashes"] is other

"""Decisions about stops and ends, told as small stories over time."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGKILL, SIGTERM

import pytest

from cockpit.engine.phases import Finish, Leave, Send, View, decide, needs_others
from cockpit.engine.processes import Process
from cockpit.engine.steady import Steady

WORKER, HELPER = Process(11, "pt_data_worker", True), Process(12, "tensorboard", False)
RUNNING = View(100.0, training=10)


def test_running_needs_nothing() -> None:
    assert decide(RUNNING) == () and not needs_others(RUNNING)


def test_grace_then_term_once_then_kill() -> None:
    stopping = replace(RUNNING, stop_until_s=130.0)
    assert decide(replace(stopping, now_s=129.9, others=(WORKER, HELPER))) == ()
    late = replace(stopping, now_s=130.0, others=(WORKER, HELPER))
    assert needs_others(late)
    assert decide(late) == (Send((10, 11, 12), SIGTERM),)
    told = replace(late, told=frozenset((10, 11, 12)))
    assert decide(told) == ()
    assert decide(replace(told, others=(*told.others, Process(13, "new", False)))) == (Send((13,), SIGTERM),)
    assert decide(replace(told, now_s=134.0)) == (Send((10, 11, 12), SIGKILL),)


def test_normal_end() -> None:
    gone = replace(RUNNING, training=None, gone_s=100.0, exit_status=3)
    assert needs_others(gone)
    assert decide(gone) == ()
    assert decide(replace(gone, now_s=100.06)) == (Finish(3, ()),)
    assert decide(replace(gone, now_s=100.4, hears=True)) == ()
    assert decide(replace(gone, now_s=100.5, hears=True)) == (Finish(3, ()),)


def test_workers_are_reaped_and_helpers_named() -> None:
    gone = replace(RUNNING, training=None, gone_s=100.0, exit_status=0, others=(WORKER, HELPER))
    assert decide(gone) == (Send((11,), SIGTERM),)
    assert decide(replace(gone, now_s=100.9, told=frozenset((11,)))) == ()
    assert decide(replace(gone, now_s=101.0)) == (Send((11,), SIGKILL),)
    assert decide(replace(gone, now_s=100.3, others=(HELPER,))) == ()
    assert decide(replace(gone, now_s=100.7, others=(HELPER,))) == (Finish(0, ("12 tensorboard",)),)
    unkillable = replace(gone, now_s=110.0, others=(WORKER,))
    assert decide(unkillable) == (Send((11,), SIGKILL), Finish(0, ("11 pt_data_worker",)))


def test_what_a_stopped_training_leaves_behind_has_the_rest_of_the_grace() -> None:
    gone = replace(RUNNING, training=None, gone_s=110.0, exit_status=0, others=(HELPER,), stop_until_s=130.0)
    assert decide(replace(gone, now_s=110.7)) == () == decide(replace(gone, now_s=129.9))
    assert decide(replace(gone, now_s=110.7, others=())) == (Finish(0, ()),)
    assert decide(replace(gone, now_s=130.0)) == (Send((12,), SIGTERM),)
    assert decide(replace(gone, now_s=134.0, told=frozenset((12,)))) == (Send((12,), SIGKILL),)
    assert decide(replace(gone, now_s=140.0)) == (Send((12,), SIGKILL), Finish(0, ("12 tensorboard",)))
    hours = replace(gone, stop_until_s=9999.0)
    assert decide(replace(hours, now_s=139.9)) == () and decide(replace(hours, now_s=140.0)) == (Send((12,), SIGTERM),)
    both = replace(gone, others=(WORKER, HELPER))
    assert decide(replace(both, now_s=110.1)) == (Send((11,), SIGTERM),), "workers have nothing left to do"


def test_what_a_training_that_was_ended_by_force_leaves_behind_goes_at_once() -> None:
    gone = replace(RUNNING, training=None, gone_s=110.0, exit_status=0, others=(HELPER,), stop_until_s=109.0)
    assert decide(replace(gone, now_s=110.7)) == (Send((12,), SIGTERM),)
    assert decide(replace(gone, now_s=114.0)) == (Send((12,), SIGKILL),)


@pytest.mark.parametrize("stop_until_s", [None, 130.0, 109.0])
def test_what_does_not_bear_the_mark_is_named_and_neither_signalled_nor_waited_for(stop_until_s) -> None:
    gone = replace(RUNNING, training=None, gone_s=110.0, exit_status=0, unmarked=(HELPER,), now_s=110.1)
    assert decide(replace(gone, stop_until_s=stop_until_s)) == (Finish(0, ("12 tensorboard",)),)


@pytest.mark.parametrize("jump_s", [-7200.0, -1.0, 1.0, 7200.0])
def test_a_clock_that_is_set_neither_cuts_a_grace_short_nor_draws_it_out(jump_s: float) -> None:
    wall, ticks = 1_700_000_000.0, 50.0
    steady = Steady(lambda: wall, lambda: ticks)
    until_s = wall + 30.0
    assert steady.of(None) is None
    assert steady.of(until_s) == pytest.approx(80.0)
    wall, ticks = wall + 8.0 + jump_s, ticks + 8.0
    stopping = replace(RUNNING, now_s=steady.now_s(), stop_until_s=steady.of(until_s))
    assert decide(stopping) == ()
    ticks += 22.0
    assert decide(replace(stopping, now_s=steady.now_s())) == (Send((10,), SIGTERM),)
    # a forced stop is told anew, in the time that is now
    assert steady.of(wall + 2.0) == pytest.approx(ticks + 2.0)


def test_engine_leaves_with_the_last_client() -> None:
    over = replace(RUNNING, over=True, over_s=100.0)
    assert not needs_others(over)
    assert decide(over) == ()
    assert decide(replace(over, now_s=102.0)) == (Leave(),)
    assert decide(replace(over, was_watched=True)) == (Leave(),)
    assert decide(replace(over, now_s=9999.0, clients=1)) == ()

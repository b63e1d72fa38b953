"""What was a crash, what is tried again and with which settings: decided without a process."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest
from support.events import beginning, knob, loader

from cockpit.engine.crash_plan import (
    WAITS_S,
    Base,
    Left,
    begun_with,
    cause_of,
    good_settings,
    is_through,
    left_of,
    next_try,
    settings_of,
    suspects,
)
from cockpit.history.fold import fold_all
from cockpit.history.state import Entry, State
from cockpit.model.crash import Crashed
from cockpit.model.events import LoadersSeen

OURS, OTHER = 7, 9


@pytest.mark.parametrize(
    ("status", "left", "stopping", "cause"),
    [
        (0, None, False, None),
        (0, Left(OTHER, "RuntimeError: no", True), False, "RuntimeError: no"),  # behind a shell, as train.py | tee
        (0, Left(OTHER, "RuntimeError: no", True), True, None),
        (0, Left(OTHER, "RuntimeError: no", False), False, None),
        (0, Left(OTHER, None, True), False, None),
        (0, Left(OURS, "RuntimeError: no", True), False, None),
        (None, None, False, None),
        (1, Left(OURS, "RuntimeError: no", True), False, "RuntimeError: no"),
        (1, Left(OTHER, "RuntimeError: no", True), False, "RuntimeError: no"),
        (1, Left(OTHER, "RuntimeError: no", False), False, None),
        (1, Left(OURS, None, True), False, None),
        (1, None, False, None),
        (75, Left(OURS, None, False), False, None),
        (137, None, False, "killed (SIGKILL)"),
        (137, Left(OTHER, None, True), False, "killed (SIGKILL)"),
        (137, Left(OURS, None, True), False, None),
        (137, None, True, None),
        (1, Left(OURS, "RuntimeError: no", True), True, None),
        (128 + signal.SIGSEGV, None, False, "killed (SIGSEGV)"),
        (128 + signal.SIGABRT, None, False, "killed (SIGABRT)"),
        (255, None, False, None),
        # a driver's sys.exit(process.returncode), with torch imported or not
        (256 - signal.SIGSEGV, None, False, "killed (SIGSEGV)"),
        (256 - signal.SIGKILL, Left(OURS, None, False), False, "killed (SIGKILL)"),
        (256 - signal.SIGSEGV, Left(OURS, None, True), False, None),
        (256 - signal.SIGTERM, None, False, None),
        *((128 + number, None, False, None) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_what_was_a_crash(status: int | None, left: Left | None, stopping: bool, cause: str | None) -> None:
    assert cause_of(status, left, OURS, stopping) == cause


@pytest.mark.parametrize(
    ("base", "stopped", "through"),
    [
        (None, False, True),
        (None, True, False),  # why there is none is told
        (Base("a hand-off", "3", path="3", epochs_left=2), False, False),
        (Base("a hand-off", "3", path="3", epochs_left=2), True, False),
        (Base("a hand-off", "3", path="3", epochs_left=0), False, True),
        (Base("a hand-off", "3", path="3", epochs_left=0), True, True),
        (Base("a checkpoint", "c"), False, True),
        (Base("a checkpoint", "c"), True, False),
        (Base("the start", "start", epochs_left=9), False, True),
    ],
)
def test_what_status_0_says(base: Base | None, stopped: bool, through: bool) -> None:
    assert is_through(base, stopped) == through


@pytest.mark.parametrize("found", [{}, {"pid": "x"}, {"pid": None, "error": "e"}])
def test_a_word_that_is_none(found: dict[str, Any]) -> None:
    assert left_of(found) is None


BASE = Base("the hand-off after 2 epochs", "hand-off 2", step=40)


def state(*entries: Entry, **in_force: Any) -> State:
    rows = tuple(knob(name, 0 if name == "num_workers" else False, value) for name, value in in_force.items())
    return replace(fold_all([*beginning(), LoadersSeen(1001.0, (loader(knobs=rows),))]), ledger=entries)


def entry(name: str, word: str, value: Any, at: float = 1000.0, **more: Any) -> Entry:
    return Entry(name, {"num_workers": value}, 1000.0, state=word, landed_s=at, at_step=1, **more)


def crash(settings: str, key: str = BASE.key, tried: bool = True) -> Crashed:
    return Crashed(1.0, 137, "killed", settings=settings, base_key=key, next_s=1.0 if tried else None)


def test_what_had_not_settled_is_taken_back_to_what_was_good() -> None:
    kept, fresh = entry("c1", "kept", 2), entry("c2", "settling", 8)
    found = good_settings(state(kept, fresh, num_workers=8), [fresh])
    assert (found.setup, found.loaders) == ({"num_workers": 2}, {})
    alone = state(fresh, num_workers=8, pin_memory=True)
    assert good_settings(alone, suspects(alone)).setup == {"pin_memory": True}
    from_start = replace(alone, setup={"num_workers": 1})
    assert good_settings(from_start, [fresh]).setup == {"num_workers": 1, "pin_memory": True}


def test_a_variable_goes_back_too() -> None:
    change = {"env A": ("1", "2"), "env B": (None, "x")}
    fresh = Entry("r", {"env A": "2", "env B": "x"}, 1000.0, state="settling", change=change, at_step=1)
    known = replace(state(fresh), environment={"A": ("0", "2"), "B": (None, "x"), "C": (None, "y")})
    assert settings_of(known).env == {"A": "2", "B": "x", "C": "y"}
    assert good_settings(known, [fresh]).env == {"A": "1", "C": "y"}


def test_a_mere_restart_is_not_blamed() -> None:
    anew = Entry("r", {"process": "started anew"}, 1000.0, state="settling", at_step=1)
    assert suspects(state(anew)) == ()


def test_the_same_settings_are_tried_once_more_and_never_twice_without_coming_further() -> None:
    then = settings_of(state(num_workers=2))
    first = next_try(crash(then.word), (), then, BASE, WAITS_S)
    assert (first.wait_s, first.number) == (5.0, 1)
    again = next_try(crash(then.word), (crash(then.word),), then, BASE, WAITS_S)
    assert again.wait_s is None and "twice under the same settings" in (again.reason or "")
    further = replace(BASE, key="hand-off 3")
    came = next_try(crash(then.word, further.key), (crash(then.word),), then, further, WAITS_S)
    assert (came.wait_s, came.number) == (30.0, 2)
    others = next_try(crash("other"), (crash(then.word),), then, BASE, WAITS_S)
    assert (others.wait_s, others.number) == (30.0, 2), "back to settings that have failed once, as anything may"
    never = next_try(crash("other"), (crash(then.word), crash(then.word, tried=False)), then, BASE, WAITS_S)
    assert never.wait_s is None


def test_three_tries_and_no_fourth() -> None:
    then = settings_of(state())
    before = tuple(crash(then.word, f"hand-off {number}") for number in range(3))
    found = next_try(crash(then.word, "hand-off 9"), before, then, replace(BASE, key="hand-off 9"), WAITS_S)
    assert found.wait_s is None and found.reason == "given up: 3 tries were made"
    third = next_try(crash(then.word, "hand-off 9"), before[:2], then, replace(BASE, key="hand-off 9"), WAITS_S)
    assert (third.wait_s, third.number) == (120.0, 3)


def test_nothing_to_go_on_from_is_nothing_to_try() -> None:
    why = replace(crash("x"), reason="it does not call cockpit.session")
    assert next_try(why, (), settings_of(state()), None, WAITS_S).reason == "it does not call cockpit.session"


def test_what_follows_the_loop_is_not_tried_by_itself() -> None:
    """It may be another training, which would begin with what this one has learnt."""
    found = next_try(crash("x"), (), settings_of(state()), replace(BASE, epochs_left=0), WAITS_S)
    assert found.wait_s is None and "had ended" in (found.reason or "")
    assert next_try(crash("x"), (), settings_of(state()), replace(BASE, epochs_left=1), WAITS_S).wait_s is not None


def test_a_process_that_could_tell_nothing_ran_under_what_it_was_given() -> None:
    now = state(entry("c1", "kept", 2, at=900.0), num_workers=2)
    assert begun_with(now, "given", 1000.0) == "given"
    landed = state(entry("c1", "kept", 2, at=1100.0), num_workers=2)
    assert begun_with(landed, "given", 1000.0) == settings_of(landed).word != "given"
    assert begun_with(now, None, None) == settings_of(now).word

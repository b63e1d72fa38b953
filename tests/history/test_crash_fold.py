"""A crash in the state: who is blamed, what waits, what is told; and a run that goes on after its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.events import NOISY, Story, beginning, sample

from cockpit.cli.outcome import three_lines
from cockpit.cli.progress import Progress
from cockpit.cli.status import page
from cockpit.engine.changes import stacks
from cockpit.history import crash as told
from cockpit.history.activity import activity_of
from cockpit.history.fold import fold_all
from cockpit.history.journal import Journal, has_ended, read_state
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.history.trials import entry_of
from cockpit.model.crash import Crashed, HandoffSeen, Resumed, SessionSeen
from cockpit.model.events import ChangeAsked, ChangeMoved, Event, ProbeLost, ProcessStarted, TrainingEnded

KNOWN: dict[str, Any] = {
    "exit_status": 137,
    "cause": "killed (SIGKILL)",
    "base": "the hand-off after 2 epochs",
    "base_key": "hand-off 2",
    "lost_steps": 34,
    "offered": True,
}


def crashed(state: State, **more: Any) -> Crashed:
    return Crashed(state.at_s, **{**KNOWN, "step": state.step, **more})


def waits(state: State, *back: str) -> Crashed:
    return crashed(state, next_s=state.at_s + 5.0, number=1, of=3, change="x", back=back)


def begun() -> tuple[Story, State]:
    """A change is kept, another settles, and one is queued."""
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY])])
    for change, value in (("c1", 2), ("c2", 8)):
        state = fold_all(story.landed(change, {"num_workers": 0}, {"num_workers": value}), state)
        state = fold_all(story.blocks(NOISY) if change == "c1" else (), state)
    return story, fold_all([story.asked("c3", {"pin_memory": True}), sample(story.at_s, step=story.step)], state)


def test_only_what_had_not_settled_is_blamed_and_the_rest_waits() -> None:
    _, state = begun()
    after = fold_all([waits(state, "c2")], state)
    states = {entry.id: entry.state for entry in after.ledger}
    assert states == {"c1": "kept", "c2": "ended", "c3": "queued"}
    blamed = entry_of(after, "c2")
    assert blamed is not None and "SIGKILL" in (blamed.reason or "") and told.TAKEN_BACK in (blamed.reason or "")
    assert (after.phase, after.exit_status, after.ranks, after.probe) == ("starting", None, (), "lost")
    assert all(not loader.workers for loader in after.loaders) and told.is_waiting(after)
    assert activity_of(after, after.at_s + 2.0).for_s == pytest.approx(2.0), "since the crash, not since the start"


def test_a_restart_that_waited_for_it_is_over_and_undo_finds_what_was_before() -> None:
    story, state = begun()
    state = fold_all([story.asked("r", {"env A": "1"}), story.moved("r", "queued")], state)
    after = fold_all([waits(state), story.asked("x", {"process": "started anew"}, origin="crash")], state)
    waited = entry_of(after, "r")
    assert waited is not None and (waited.state, waited.reason) == ("refused", told.TOO_LATE)
    landed = {"before": {"process": None}, "in_force": {"process": "started anew"}, "drain": 20}
    after = fold_all(
        [Resumed(after.at_s, "x"), story.moved("x", "applying"), story.moved("x", "settling", **landed)], after
    )
    assert [entry.id for entry in stacks(after)[0]] == ["c1"], "a mere restart is nothing to take back"


def test_a_later_process_is_starting_since_it_was_begun_and_not_since_the_run_was() -> None:
    story, state = begun()
    first = replace(state, phase="starting", started_s=state.at_s - 300.0)
    assert activity_of(first, first.at_s + 2.0).for_s == pytest.approx(302.0)
    waiting = fold_all([waits(first), story.asked("x", {"process": "started anew"}, origin="crash")], first)
    began = fold_all([Resumed(first.at_s + 5.0, "x"), ChangeMoved(first.at_s + 5.0, "x", "applying")], waiting)
    assert began.phase == "starting"
    assert activity_of(began, first.at_s + 7.0).for_s == pytest.approx(2.0)


def test_without_another_try_the_end_closes_everything() -> None:
    _, state = begun()
    after = fold_all([crashed(state, reason="given up"), TrainingEnded(state.at_s, 137)], state)
    assert {entry.id: entry.state for entry in after.ledger} == {"c1": "kept", "c2": "ended", "c3": "refused"}
    assert (after.phase, after.exit_status) == ("ended", 137) and not told.is_waiting(after)
    assert status_of(after, after.at_s)["crash"]["restart"] is True


def test_what_is_told_while_it_waits_and_after() -> None:
    _, state = begun()
    waiting = fold_all([waits(state, "c2")], state)
    words = told.words(waiting, waiting.at_s + 1.0) or ""
    assert words.startswith(f"killed (SIGKILL), at step {state.step}; try 1 of 3 in 4 s goes on from the hand-off")
    assert "34 steps or a few more are lost" in words and words.endswith("without num_workers 0→8")
    assert "try 1 of 3 once nothing of it trains and its files can be written goes on" in (
        told.words(waiting, waiting.at_s + 9.0) or ""
    )
    assert f"crashed     {words}" in page(waiting, waiting.at_s + 1.0)
    ended = fold_all([crashed(state, reason="given up"), TrainingEnded(state.at_s, 137)], state)
    offered = f"cockpit restart {state.run} goes on from the hand-off after 2 epochs: 34 steps or a few more are lost"
    assert any(line.startswith("Crashed: ") and line.endswith(offered) for line in text_of(ended, ended.at_s))
    assert three_lines(ended)[-1].startswith(f"restart   cockpit restart {state.run} goes on from")
    said = Progress()
    assert any("crashed: " in line for line in said.said(waiting, waiting.at_s))
    assert not any("crashed: " in line for line in said.said(waiting, waiting.at_s + 1.0))


@pytest.mark.parametrize(
    ("steps", "seconds", "exact", "words"),
    [
        (0, None, True, "nothing is lost"),
        (1, None, True, "1 step is lost"),
        (34, 9.0, True, "34 steps are lost"),
        (0, None, False, "a few steps may be lost"),
        (None, 61.0, True, "what was trained in the 61 s since then is lost"),
        (None, None, True, "what is lost is not known"),
    ],
)
def test_what_was_lost_in_words(steps: int | None, seconds: float | None, exact: bool, words: str) -> None:
    assert told.lost_words(steps, seconds, exact) == words


def test_a_run_that_had_ended_goes_on(tmp_path: Path) -> None:
    _, state = begun()
    scheduled = ChangeAsked(state.at_s, "at0", {"in_order": False}, origin="schedule")
    ended = fold_all([scheduled, crashed(state), TrainingEnded(state.at_s, 137, ("9 uploader",))], state)
    assert entry_of(ended, "at0") is not None
    again = fold_all([Resumed(ended.at_s, "x", by_person=True)], ended)
    assert (again.phase, again.exit_status, again.ended_s, again.pid) == ("starting", None, None, None)
    assert (again.survivors, again.crash, again.crashes) == ((), None, ())
    assert entry_of(again, "at0") is None, "it waits for its moment again"
    running = fold_all([ProcessStarted(again.at_s, 4712)], again)
    assert (running.phase, running.pid) == ("running", 4712)


def test_tries_are_counted_until_a_person_asks() -> None:
    _, state = begun()
    waiting = fold_all([waits(state)], state)
    by_itself = fold_all([Resumed(waiting.at_s, "x")], waiting)
    assert len(by_itself.crashes) == 1 and by_itself.crash is None


def test_the_journal_knows_that_the_end_was_none(tmp_path: Path) -> None:
    def write(state: State, *events: Event) -> State:
        journal = Journal(tmp_path, state)
        for event in events:
            state = fold_all([event], state)
            journal.append(event, state)
        journal.close()
        return state

    state = write(State(), *beginning(), TrainingEnded(1005.0, 137))
    assert has_ended(tmp_path)
    state = write(state, Resumed(1010.0, "x", by_person=True), ProcessStarted(1011.0, 4712))
    assert not has_ended(tmp_path) and read_state(tmp_path) == state
    write(state, *(ProbeLost(1012.0, number) for number in range(3000)))
    assert not has_ended(tmp_path), "however long ago that was"
    write(state, TrainingEnded(1013.0, 0))
    assert has_ended(tmp_path)


@pytest.mark.parametrize(
    ("facts", "session", "why"),
    [
        ({"on_crash": "restart"}, None, "does not call cockpit.session"),
        ({"on_crash": "restart"}, SessionSeen(1001.5, ("model",), 3, 1), None),
        ({"on_crash": "restart"}, SessionSeen(1001.5, ("model",), None, 1, "not in its loop"), "not in its loop"),
        ({"on_crash": "restart"}, SessionSeen(1001.5, ("model",), 3, 1, "its loop is over"), None),
        ({"on_crash": "restart", "resume_with": "--resume {checkpoint}"}, None, None),
        ({}, None, None),
    ],
)
def test_who_asked_for_tries_that_cannot_help_is_told_before_the_crash(
    facts: dict[str, Any], session: SessionSeen | None, why: str | None
) -> None:
    opened = [session] if session else []
    early = fold_all([*beginning(), *opened])
    said = Progress(facts)
    assert not any("crash" in line for line in said.said(early, 1001.6)), "no step yet: nobody knows"
    state = fold_all([sample(1002.0, step=9)], early)
    lines = [line for line in said.said(state, 1002.0) if "tried again" in line]
    assert [str(why) in line for line in lines] == [True] * bool(why)
    assert not any("tried again" in line for line in said.said(state, 1003.0))
    shown = page(state, 1002.0, told.helpless(state, facts))
    assert any(line.startswith("on a crash  it would not be tried again") for line in shown) == bool(why)


def test_a_hand_off_that_failed_leaves_the_one_before() -> None:
    state = fold_all(
        [*beginning(), HandoffSeen(1002.0, 1, 40, 10, 0.1), HandoffSeen(1003.0, reason="the disk is full")]
    )
    told = status_of(state, 1004.0)["handoff"]
    assert {name: told[name] for name in ("epoch", "step", "bytes", "seconds", "failed")} == {
        "epoch": 1, "step": 40, "bytes": 10, "seconds": 0.1, "failed": "the disk is full",
    }  # fmt: skip
    assert fold_all([HandoffSeen(1004.0, 2, 80, 10, 0.1)], state).handoff_failed is None
    assert any("the disk is full" in line for line in Progress().said(state, 1004.0))

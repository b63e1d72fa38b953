"""A hot restart in the ledger: a change as any other, but for a first window that is nobody's."""

from __future__ import annotations

from dataclasses import replace

from support.events import NOISY, Story, beginning

from cockpit.analysis.compare import FASTER
from cockpit.engine.changes import anything_waits, stacks
from cockpit.history.environment import tuned_environment
from cockpit.history.fold import fold_all
from cockpit.history.report import text_of, trial_line
from cockpit.history.save import saved_of
from cockpit.history.state import State
from cockpit.history.status import ledger_line, status_of
from cockpit.history.trials import entry_of, is_restart
from cockpit.model.environment import AS_BEGAN
from cockpit.model.events import ProbeLost, ProcessStarted, TrainingEnded
from cockpit.model.knobs import UNSET
from cockpit.wire.codec import from_plain, to_plain

BEFORE, AFTER = {"env OMP_NUM_THREADS": None}, {"env OMP_NUM_THREADS": "4"}


def landed() -> tuple[Story, State]:
    story = Story()
    told = [*beginning(), *story.blocks([50.0, *NOISY]), story.asked("r1", AFTER)]
    told += [
        story.moved("r1", "applying"),
        ProbeLost(story.at_s, 4711),
        ProcessStarted(story.at_s, 4712),
        story.moved("r1", "settling", before=BEFORE, in_force=AFTER, drain=20, stall_ms=310.0),
    ]
    return story, fold_all(told)


def test_before_and_after_are_compared_once_the_new_process_is_warm() -> None:
    story, state = landed()
    entry = entry_of(state, "r1")
    assert entry is not None and is_restart(entry) and entry.state == "settling"
    assert (state.pid, state.phase, state.current.cold) == (4712, "running", True)
    state = fold_all(story.blocks([20.0, 40.0]), state)  # allocators and caches begin anew
    still = entry_of(state, "r1")
    assert still is not None and still.state == "settling"
    state = fold_all(story.blocks([200.0, 202.0, 200.0, 201.0]), state)
    kept = entry_of(state, "r1")
    assert kept is not None and (kept.state, kept.verdict) == ("kept", FASTER)
    assert kept.after_samples_per_s is not None and 190 < kept.after_samples_per_s < 210
    line = ledger_line(kept)
    assert line["change"] == {"env OMP_NUM_THREADS": [None, "4"]} and line["stall_ms"] == 310.0
    assert trial_line(kept).startswith("env OMP_NUM_THREADS 4 · step")
    assert stacks(state)[0] == [kept]


def test_what_is_in_force_of_the_environment_is_what_was_asked_for_and_no_more() -> None:
    story, state = landed()
    assert tuned_environment(state) == {"OMP_NUM_THREADS": "4"}
    back = [story.asked("r2", {"env OMP_NUM_THREADS": UNSET}, origin="undo"), story.moved("r2", "applying")]
    undone = fold_all([*back, story.moved("r2", "settling", before=AFTER, in_force=BEFORE)], state)
    assert tuned_environment(undone) == {}, "as the run began"
    more = {"env OMP_NUM_THREADS": "8", "env MINE": UNSET, "env RULED": "1"}
    told = [story.asked("r3", more), story.moved("r3", "applying")]
    found = {"env OMP_NUM_THREADS": "8", "env MINE": None, "env RULED": AS_BEGAN}
    before = {"env OMP_NUM_THREADS": "4", "env MINE": AS_BEGAN, "env RULED": None}
    third = fold_all([*told, story.moved("r3", "settling", before=before, in_force=found)], state)
    assert tuned_environment(third) == {"OMP_NUM_THREADS": "8", "MINE": None}, "but for what the script has overruled"
    came_back = fold_all([story.moved("r3", "rolled_back")], third)
    assert tuned_environment(came_back) == {"OMP_NUM_THREADS": "4"}


def test_what_the_setups_file_has_set_is_in_force_from_the_start() -> None:
    first, *rest = beginning()
    state = fold_all([replace(first, environment={"MINE": "7", "GONE": None}), *rest])
    assert tuned_environment(state) == {"MINE": "7", "GONE": None}
    assert saved_of(state).wishes.environment == {"MINE": "7", "GONE": None}
    again = from_plain(State, to_plain(state))
    assert tuned_environment(again) == tuned_environment(state)
    assert status_of(state, 1.0)["environment"] == {"MINE": "7", "GONE": None}
    assert "MINE 7, GONE (not set)" in "\n".join(text_of(state, 1.0))


def test_one_that_comes_back_leaves_the_measuring_where_it_was() -> None:
    story = Story()
    told = [*beginning(), *story.blocks([50.0, *NOISY]), story.asked("r1", AFTER), story.moved("r1", "applying")]
    state = fold_all(told)
    before = state.current
    state = fold_all([story.moved("r1", "rolled_back", before=BEFORE, drain=20, reason="status 9")], state)
    entry = entry_of(state, "r1")
    assert entry is not None and entry.state == "rolled_back" and entry.reason == "status 9"
    assert state.current.change == before.change and state.current.discard_steps > 20
    assert state.current.blocks == before.blocks


def test_one_that_waits_is_no_change_that_a_probe_could_forget() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0]), story.asked("r1", AFTER)])
    assert not anything_waits(state)
    ended = fold_all([TrainingEnded(story.at_s, 0)], state)
    entry = entry_of(ended, "r1")
    assert entry is not None and entry.state == "refused" and "ended before it could be applied" in (entry.reason or "")

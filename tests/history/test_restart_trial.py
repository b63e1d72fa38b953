"""A hot restart in the ledger: a change as any other, but for a first window that is nobody's."""

from __future__ import annotations

from support.events import NOISY, Story, beginning

from cockpit.analysis.compare import FASTER
from cockpit.engine.changes import anything_waits, stacks
from cockpit.history.fold import fold_all
from cockpit.history.report import trial_line
from cockpit.history.state import State
from cockpit.history.status import ledger_line
from cockpit.history.trials import entry_of, is_restart
from cockpit.model.events import ProbeLost, ProcessStarted, TrainingEnded

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

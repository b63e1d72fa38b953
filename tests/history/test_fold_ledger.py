"""The life of a change: asked, in force, measured, kept or not. Told in events, read from the state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import NOISY, Story, beginning, loader

from cockpit.analysis.compare import FASTER, NOT_COMPARABLE, SETTLING
from cockpit.engine.changes import stacks
from cockpit.history.fold import fold_all
from cockpit.history.report import best_entry, gain_lines, held_back, trial_line
from cockpit.history.state import Entry, State
from cockpit.history.status import ledger_line
from cockpit.history.trials import REPLACED, entry_of
from cockpit.model.events import BaselineSet, ChangeMoved, LoadersSeen, TrainingEnded
from cockpit.model.knobs import NO_EFFECT
from cockpit.tui.head import change_row
from cockpit.tui.rows import text_of
from cockpit.tui.trials import trials_rows
from cockpit.tui.view import View

WORKERS = ({"num_workers": 0}, {"num_workers": 2})


def entry(state: State, change: str = "c1") -> Entry:
    found = entry_of(state, change)
    assert found is not None
    return found


def warm() -> tuple[Story, State]:
    """A run with a cold first window and nine calm ones."""
    story = Story()
    return story, fold_all([*beginning(), *story.blocks([50.0, *NOISY])])


@pytest.mark.parametrize("after", [45.0, 100.0, 240.0])
def test_a_change_that_changes_nothing_has_no_figure(after: float) -> None:
    """Kept, with its reason in the place of a verdict, whatever was measured under it; and it is never the best."""
    reason = NO_EFFECT + "this CPU multiplies float32 exactly either way"
    story, state = warm()
    told = story.landed("c1", {"matmul": "highest"}, {"matmul": "high"}, reason=reason)
    state = fold_all([*told, *story.blocks([after * rate / 100.0 for rate in NOISY])], state)
    found = entry(state)
    assert (found.state, found.verdict, found.delta_pct, found.interval_pct) == ("kept", NOT_COMPARABLE, None, None)
    assert found.after_windows > 0 and ledger_line(found)["reason"] == reason
    assert best_entry(state) is None and reason in trial_line(found)
    view = View(state, story.at_s)
    assert reason in text_of([change_row(view, 120)]) and "no effect" in text_of(trials_rows(view, 60, 5))
    counted = fold_all([*story.landed("c2", *WORKERS), *story.blocks([300.0] * 5)], state)
    assert entry(counted, "c2").verdict == FASTER and best_entry(counted) == entry(counted, "c2")


def test_a_change_is_queued_then_settling_then_kept_with_its_gain() -> None:
    story, state = warm()
    state = fold_all([story.asked("c1", {"num_workers": 2})], state)
    assert (entry(state).state, entry(state).verdict) == ("queued", SETTLING)
    state = fold_all([story.moved("c1", "settling", before=WORKERS[0], in_force=WORKERS[1], capacity=4)], state)
    assert entry(state).state == "settling" and entry(state).change == {"num_workers": (0, 2)}
    assert entry(state).at_step == story.step
    moves = [ChangeMoved(9e9, "c9", "applying", step=70), ChangeMoved(9e9, "c9", "settling", step=72)]
    later = fold_all([story.asked("c9", {"autocast": "bf16"}), *moves], state)
    assert later.ledger[-1].at_step == 70, "the first step under it, not the one that showed it"
    state = fold_all(story.blocks([200.0]), state)
    assert entry(state).state == "settling", "the first block holds batches of the old workers and is thrown away"
    assert entry(state).after_samples_per_s is None
    state = fold_all(story.blocks([200.0, 202.0]), state)
    found = entry(state)
    assert found.state == "kept" and found.verdict == FASTER
    assert found.before_samples_per_s == pytest.approx(100.0, rel=0.01)
    assert found.after_samples_per_s == pytest.approx(201.0, rel=0.01)
    assert found.delta_pct == pytest.approx(101.0, abs=2.0)
    assert found.interval_pct is not None and found.interval_pct[0] < 101.0 < found.interval_pct[1]
    assert found.before_windows == len(NOISY) and found.after_windows == 2
    assert found.settled_steps == found.settle_steps


def test_each_state_is_in_the_reports_line_with_what_it_cost() -> None:
    story, state = warm()
    asked = fold_all([story.asked("c1", {"num_workers": 2})], state)
    assert trial_line(entry(asked)) == "num_workers 2 · queued"
    told = ChangeMoved(story.at_s, "c1", "queued", note="it may need 12 more open files")
    applying = fold_all([told, story.moved("c1", "applying")], asked)
    assert trial_line(entry(applying)).endswith("· applying · said before: it may need 12 more open files")
    landed = {"before": WORKERS[0], "in_force": WORKERS[1]}
    settling = fold_all([story.moved("c1", "settling", stall_ms=80.0, **landed)], applying)
    assert "num_workers 0→2 · step 2000 · settling · stall 80 ms" in trial_line(entry(settling))
    kept = fold_all(story.blocks([200.0, 201.0, 202.0]), settling)
    assert " · kept · " in trial_line(entry(kept)) and " faster · stall 80 ms" in trial_line(entry(kept))
    back = fold_all([story.moved("c1", "rolled_back", stall_ms=420.0, reason="out of memory")], settling)
    assert trial_line(entry(back)).startswith("num_workers 0→2 · step 2000 · rolled back · stall 420 ms")
    assert ledger_line(entry(back))["note"] == "it may need 12 more open files"
    assert "no step was measured under the settings in force" in held_back(replace(settling, baseline=None))
    undone = fold_all([story.asked("c2", {"num_workers": 0}, origin="undo")], kept)
    assert trial_line(entry(undone, "c2")) == "num_workers 0 · taking back · queued"


def test_the_first_window_is_never_the_baseline() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([10.0])])
    assert state.baseline is None
    state = fold_all(story.blocks([100.0]), state)
    assert state.baseline is not None and state.baseline.samples_per_s == pytest.approx(100.0)


def test_the_baseline_stays_where_it_was_when_a_change_has_landed() -> None:
    story, before = warm()
    after = fold_all([*story.landed("c1", *WORKERS), *story.blocks([300.0] * 5)], before)
    assert after.baseline == before.baseline


def test_a_person_can_call_the_present_the_baseline() -> None:
    story, state = warm()
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([300.0] * 5)], state)
    state = fold_all([BaselineSet(story.at_s)], state)
    assert state.baseline is not None and state.baseline.by_person
    assert state.baseline.samples_per_s == pytest.approx(300.0)


def test_too_few_windows_before_are_not_comparable_and_claim_nothing() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, 100.0, 101.0])])
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([200.0] * 4)], state)
    found = entry(state)
    assert found.state == "kept" and found.verdict == NOT_COMPARABLE
    assert found.delta_pct is None and found.interval_pct is None and found.before_windows == 2


def test_as_many_steps_are_thrown_away_as_the_old_workers_had_made() -> None:
    story, state = warm()
    state = fold_all(story.landed("c1", *WORKERS, drain=7, capacity=4), state)
    assert state.current.discard_steps == 7 + 4 + 2
    state = fold_all(story.blocks([200.0], steps=10), state)
    assert state.current.discard_steps == 3 and state.current.blocks == ()
    state = fold_all(story.blocks([200.0, 200.0], steps=10), state)
    assert state.current.discard_steps == 0 and len(state.current.blocks) == 1


def test_blocks_of_another_setup_are_never_counted() -> None:
    story, state = warm()
    late = list(story.blocks([999.0] * 3))
    state = fold_all(story.landed("c1", *WORKERS), state)
    state = fold_all(late, state)
    assert state.current.blocks == () and entry(state).after_samples_per_s is None


def test_two_changes_at_one_boundary_share_their_before_and_say_so() -> None:
    story, state = warm()
    before = state.current
    state = fold_all(story.landed("c1", *WORKERS), state)
    state = fold_all(story.landed("c2", {"pin_memory": False}, {"pin_memory": True}), state)
    assert state.previous == before
    assert (entry(state, "c1").state, entry(state, "c1").verdict) == ("kept", NOT_COMPARABLE)
    assert entry(state, "c2").reason == "measured together with num_workers 0→2"
    state = fold_all(story.blocks([200.0] * 4), state)
    assert entry(state, "c2").verdict == FASTER and entry(state, "c2").before_windows == len(NOISY)


def test_a_change_overtaken_while_it_settles_claims_nothing() -> None:
    story, state = warm()
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([200.0, 200.0])], state)
    assert entry(state).state == "settling" and entry(state).delta_pct is not None
    assert entry(state).verdict == SETTLING, "no word is said before the change is kept"
    state = fold_all(story.landed("c2", {"num_workers": 2}, {"num_workers": 4}), state)
    found = entry(state)
    assert (found.state, found.verdict, found.delta_pct) == ("kept", NOT_COMPARABLE, None)


def test_a_rollback_goes_on_with_the_former_segment() -> None:
    story, state = warm()
    former = state.current
    state = fold_all(story.landed("c1", *WORKERS), state)
    state = fold_all([story.moved("c1", "rolled_back", reason="a worker died", drain=2)], state)
    found = entry(state)
    assert (found.state, found.verdict, found.reason) == ("rolled_back", NOT_COMPARABLE, "a worker died")
    assert state.current.change is None and state.current.blocks == former.blocks
    assert state.current.discard_steps == 2 + 3
    story.change = None
    state = fold_all(story.blocks([100.0, 100.0]), state)
    assert len(state.current.blocks) == len(former.blocks) + 1


def test_a_rollback_to_a_setup_that_was_never_measured_starts_afresh() -> None:
    story, state = warm()
    state = fold_all(story.landed("c1", *WORKERS), state)
    state = fold_all(story.landed("c2", {"pin_memory": False}, {"pin_memory": True}), state)
    state = fold_all([story.moved("c2", "rolled_back", reason="no")], state)
    assert state.current.change == "c1" and state.current.blocks == ()
    story.change = "c1"
    state = fold_all(story.blocks([200.0] * 4), state)
    assert len(state.current.blocks) == 3
    assert entry(state, "c1").verdict == FASTER


def test_two_changes_of_one_boundary_that_both_come_back_go_on_with_the_former_segment() -> None:
    story, state = warm()
    former = state.current
    state = fold_all(story.landed("c1", *WORKERS), state)
    state = fold_all(story.landed("c2", {"pin_memory": False}, {"pin_memory": True}), state)
    state = fold_all(
        [story.moved("c1", "rolled_back", reason="no"), story.moved("c2", "rolled_back", reason="no")], state
    )
    assert state.current.change is None and state.current.blocks == former.blocks


def test_a_change_of_a_loader_that_does_not_train_leaves_the_measuring_alone() -> None:
    story, state = warm()
    state = fold_all([LoadersSeen(story.at_s, (loader(), loader("train.py:52", "other")))], state)
    state = fold_all(story.landed("c1", *WORKERS), state)
    asked = story.asked("c2", {"num_workers": 1}, loader="train.py:52")
    landed = ChangeMoved(
        story.at_s, "c2", "settling", story.step, 9.0, before={"num_workers": 0}, in_force={"num_workers": 1}
    )
    state = fold_all([asked, landed, *story.blocks([200.0] * 4)], state)
    found = entry(state, "c2")
    assert (found.state, found.verdict, found.change) == ("kept", NOT_COMPARABLE, {"num_workers": (0, 1)})
    assert "train.py:52 does not train" in (found.reason or "")
    assert state.current.change == "c1" and (entry(state, "c1").state, entry(state, "c1").verdict) == ("kept", FASTER)
    back = story.asked("c3", {"num_workers": 0}, loader="train.py:52", origin="undo")
    state = fold_all([back, ChangeMoved(story.at_s, "c3", "settling", in_force={"num_workers": 0})], state)
    assert (entry(state, "c2").state, entry(state, "c1").state, state.current.change) == ("reverted", "kept", "c1")


def test_an_undo_reverts_the_change_that_it_takes_back() -> None:
    story, state = warm()
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([200.0] * 4)], state)
    undo = story.asked("c2", {"num_workers": 0}, origin="undo")
    state = fold_all([undo, story.moved("c2", "settling", before=WORKERS[1], in_force=WORKERS[0])], state)
    assert entry(state, "c1").state == "reverted" and entry(state, "c1").verdict == FASTER
    state = fold_all(story.blocks([100.0] * 4), state)
    assert entry(state, "c2").state == "kept"


@pytest.mark.parametrize("word", ["refused", "rolled_back"])
def test_a_change_that_never_landed_leaves_the_measuring_alone(word: str) -> None:
    story, before = warm()
    state = fold_all(
        [story.asked("c1", {"pin_memory": True}), story.moved("c1", word, reason="no accelerator")], before
    )
    assert (entry(state).state, entry(state).reason) == (word, "no accelerator")
    assert entry(state).verdict == NOT_COMPARABLE and entry(state).after_samples_per_s is None
    assert (state.current.blocks, state.previous) == (before.current.blocks, before.previous)
    slow = fold_all(story.blocks([10.0], steps=10), state)
    assert (slow.current.blocks == before.current.blocks) == (word == "rolled_back"), "coming back costs a few steps"
    state = fold_all(story.blocks([100.0]), slow)
    assert state.current.blocks[-1].change is None and state.current.discard_steps == 0


@pytest.mark.parametrize("word", ["settling", "applying", "refused", "dropped"])
def test_a_word_that_comes_late_or_twice_changes_nothing(word: str) -> None:
    story, state = warm()
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([200.0] * 4)], state)
    again = fold_all([story.moved("c1", word, before=WORKERS[0], in_force=WORKERS[1])], state)
    assert again.ledger == state.ledger and again.current == state.current


def test_a_dropped_change_leaves_the_ledger_and_an_unknown_one_is_ignored() -> None:
    story, state = warm()
    state = fold_all([story.asked("c1", {"num_workers": 2}), story.asked("c1", {"num_workers": 9})], state)
    assert [line.asked for line in state.ledger] == [{"num_workers": 2}]
    state = fold_all([story.moved("c1", "dropped"), story.moved("nobody", "settling")], state)
    assert state.ledger == () and state.current.change is None


def test_the_end_closes_what_was_pending_and_stops_what_was_settling() -> None:
    story, state = warm()
    state = fold_all([*story.landed("c1", *WORKERS), story.asked("c2", {"pin_memory": True})], state)
    state = fold_all([TrainingEnded(story.at_s, 0)], state)
    assert (entry(state, "c2").state, entry(state, "c2").verdict) == ("refused", NOT_COMPARABLE)
    assert (entry(state, "c1").state, entry(state, "c1").verdict) == ("settling", NOT_COMPARABLE)
    assert all(line.reason for line in state.ledger)


def test_the_comparison_is_frozen_once_the_next_change_lands() -> None:
    story, state = warm()
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([200.0] * 5)], state)
    first = entry(state)
    state = fold_all([*story.landed("c2", WORKERS[1], {"num_workers": 4}), *story.blocks([50.0] * 9)], state)
    assert entry(state) == first
    assert entry(state, "c2").before_samples_per_s == pytest.approx(200.0, rel=0.01)


def test_a_loader_that_cannot_be_counted_gives_no_rate_and_no_verdict() -> None:
    from dataclasses import replace

    story = Story()
    blind = [replace(one, samples=None) for one in story.blocks([100.0] * 9)]  # type: ignore[type-var]
    state = fold_all([*beginning(), *blind])
    assert state.baseline is None
    state = fold_all([*story.landed("c1", *WORKERS), *story.blocks([200.0] * 4)], state)
    assert entry(state).verdict == NOT_COMPARABLE and entry(state).before_samples_per_s is None


@pytest.mark.parametrize("windows", [0, 9])
def test_where_no_samples_are_counted_that_is_the_reason_that_is_given(windows: int) -> None:
    """Waiting for more windows would not help: a training without a loader."""
    story, said = Story(), "no samples are counted here"

    def blind(count: int) -> list[object]:
        return [replace(one, samples=None) for one in story.blocks([100.0] * count)]  # type: ignore[type-var]

    state = fold_all([*beginning(), *blind(windows), *story.landed("c1", *WORKERS), *blind(9)])
    assert entry(state).state == "kept" and f"not comparable: {said}" in trial_line(entry(state))
    assert gain_lines(state)[0] == f"baseline – samples/s (not measured: {said})"
    view = View(state, state.at_s)
    assert said in text_of([change_row(view, 100)])
    assert "no count" in text_of(trials_rows(view, 60, 5)) and "/6" not in text_of(trials_rows(view, 60, 5))
    counted = fold_all([*beginning(), *Story().blocks([100.0])])
    assert "before its second window" in gain_lines(counted)[0]


def test_roles_of_loaders_are_kept_as_reported() -> None:
    from cockpit.model.events import LoadersSeen

    state = fold_all([*beginning(), LoadersSeen(1001.0, (loader(), loader("train.py:52", "other")))])
    assert [found.role for found in state.loaders] == ["train", "other"]


def test_the_ledger_tells_what_landed_in_the_order_in_which_it_did() -> None:
    """A change that was taken back too late lands all the same, before the one that was to replace it."""
    story, state = warm()
    state = fold_all([story.asked("later", {"num_workers": 2}), story.asked("c1", {"num_workers": 1})], state)
    state = fold_all([story.moved("c1", "applying")], state)
    assert [each.id for each in state.ledger] == ["c1", "later"]
    state = fold_all([story.moved("c1", "settling", before=WORKERS[0], in_force={"num_workers": 1})], state)
    state = fold_all(story.landed("later", {"num_workers": 1}, {"num_workers": 2}), state)
    assert [each.id for each in stacks(state)[0]] == ["c1", "later"], "undo takes back the newest in force"
    state = fold_all([story.asked("c3", {"in_order": False}), story.asked("c4", {"num_workers": 3})], state)
    state = fold_all([story.moved("c3", "applying"), story.moved("c4", "applying")], state)
    assert [each.id for each in state.ledger] == ["c1", "later", "c3", "c4"]


def test_a_change_that_another_follows_too_soon_says_so() -> None:
    story, state = warm()
    state = fold_all(story.landed("c1", *WORKERS), state)
    state = fold_all(story.landed("c2", {"in_order": True}, {"in_order": False}), state)
    assert entry(state).verdict == NOT_COMPARABLE and entry(state).reason == REPLACED
    assert REPLACED in trial_line(entry(state)) and entry(state, "c2").reason != REPLACED

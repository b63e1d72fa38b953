"""A batch size in the ledger: kept only when a whole epoch under it is over, and compared per sample only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import NOISY, Story, beginning, block, knob, loader

from cockpit.analysis.compare import FASTER, NOT_COMPARABLE, SETTLING
from cockpit.history.fold import fold_all
from cockpit.history.knobs import knob_rows
from cockpit.history.measure import phases_of, scaled_to
from cockpit.history.state import Entry, State
from cockpit.history.trials import entry_of
from cockpit.model.events import EpochEnded, LoadersSeen, TrainingEnded

SIZES = ({"batch_size": 8}, {"batch_size": 16})


def entry(state: State, change: str = "c1") -> Entry:
    found = entry_of(state, change)
    assert found is not None
    return found


def landed() -> tuple[Story, State]:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY]), *story.landed("c1", *SIZES)])
    return story, fold_all(story.blocks([200.0] * 4, batch=16), state)


def epoch(story: Story, name: str = "train.py:41") -> EpochEnded:
    return EpochEnded(story.at_s, name, 1, 600, 9600, 48.0, 0.0)


def test_windows_alone_do_not_keep_it() -> None:
    story, state = landed()
    assert (entry(state).state, entry(state).verdict) == ("settling", SETTLING)
    assert entry(state).after_windows >= 2 and entry(state).after_samples_per_s == pytest.approx(200.0)
    state = fold_all([epoch(story)], state)
    assert (entry(state).state, entry(state).verdict) == ("kept", FASTER)
    assert entry(state).delta_pct == pytest.approx(100.0, abs=2.0)


def test_an_epoch_alone_does_not_keep_it_either() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY]), *story.landed("c1", *SIZES), epoch(story)])
    assert entry(state).state == "settling"
    assert entry(fold_all(story.blocks([200.0] * 4, batch=16), state)).state == "kept"


def test_an_epoch_of_another_loader_says_nothing_about_one() -> None:
    story = Story()
    asked = story.asked("c1", SIZES[1], loader="train.py:41")
    moved = story.moved("c1", "settling", before=SIZES[0], in_force=SIZES[1])
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY]), asked, moved])
    state = fold_all([*story.blocks([200.0] * 4, batch=16), epoch(story, "train.py:52")], state)
    assert entry(state).state == "settling"


def test_rolled_back_at_the_epochs_end_it_was_never_kept() -> None:
    story, state = landed()
    reason = "with batches of 16 the loop saw 96 of 9600 samples: 9504 were not seen"
    state = fold_all([story.moved("c1", "rolled_back", reason=reason)], state)
    assert (entry(state).state, entry(state).verdict, entry(state).reason) == ("rolled_back", NOT_COMPARABLE, reason)


def test_another_change_on_top_does_not_keep_it_before_its_epoch() -> None:
    story, state = landed()
    state = fold_all(story.landed("c2", {"num_workers": 0}, {"num_workers": 2}), state)
    assert (entry(state).state, entry(state).verdict) == ("settling", NOT_COMPARABLE)
    state = fold_all([epoch(story)], state)
    assert (entry(state).state, entry(state).verdict) == ("kept", NOT_COMPARABLE)


def test_the_training_that_ends_first_leaves_it_settling() -> None:
    story, state = landed()
    state = fold_all([TrainingEnded(story.at_s, 0)], state)
    assert entry(state).state == "settling" and "ended before" in (entry(state).reason or "")


def test_set_from_the_start_it_is_queued_until_its_moment() -> None:
    waits = knob("batch_size", 8, asked=16, can_now=False, reason="waits", note="batches of 16: 6 an epoch")
    info = loader(knobs=(knob("num_workers", 0), waits))
    state = fold_all([*beginning(setup={"batch_size": 16}), LoadersSeen(1002.0, (info,))])
    rows = {row.name: row for row in knob_rows(state)}
    assert (rows["batch_size"].state, rows["batch_size"].note) == ("queued", "batches of 16: 6 an epoch")
    refused = replace(waits, asked=None, can=False, reason="the script made the batches itself")
    state = fold_all([LoadersSeen(1003.0, (loader(knobs=(refused,)),))], state)
    rows = {row.name: row for row in knob_rows(state)}
    assert rows["batch_size"].state == "refused" and "itself" in (rows["batch_size"].reason or "")


def test_steps_of_two_sizes_are_drawn_as_steps_of_one() -> None:
    small, large = (phases_of([block(0.0, 200, 100.0, batch=batch)]) for batch in (8, 16))
    assert small is not None and large is not None
    assert (small.samples, large.samples) == (8.0, 16.0) and large.step_ms == pytest.approx(2 * small.step_ms)
    same = scaled_to(small, large.samples)
    assert same.step_ms == pytest.approx(large.step_ms) and same.backward_ms == pytest.approx(large.backward_ms)
    assert scaled_to(small, 8.1) is small and scaled_to(small, None) is small
    assert scaled_to(replace(small, samples=None), 16.0).step_ms == small.step_ms

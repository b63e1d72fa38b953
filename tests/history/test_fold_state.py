"""The state: bounded whatever happens, the same from JSON as live, and honest about what is not known."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.events import BEGAN_S, NOISY, Story, beginning, block, knob, loader, sample

from cockpit.history.activity import BADGES, Activity, activity_of
from cockpit.history.fold import fold, fold_all
from cockpit.history.knobs import knob_rows, tuned_setup
from cockpit.history.measure import live_rate
from cockpit.history.state import EPOCHS_LONGEST, LEDGER_LONGEST, RECENT_LONGEST, State
from cockpit.history.status import status_of
from cockpit.model.events import (
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    EpochEnded,
    Event,
    EventsDropped,
    KnobReport,
    LoadersSeen,
    OutputSeen,
    ProbeConnected,
    ProbeLost,
    SetupSaved,
    Stopping,
    TrainingEnded,
)
from cockpit.model.knobs import KERNEL_KNOBS, LOADER_KNOBS
from cockpit.wire.codec import event_from_plain, event_to_plain, from_plain, to_plain


def test_a_run_is_followed_from_start_to_end() -> None:
    state = fold_all(beginning())
    assert (state.phase, state.pid, state.probe, state.torch) == ("running", 4711, "connected", "2.14.1")
    state = fold_all([Stopping(1010.0, 1040.0)], state)
    assert (state.phase, state.stopping_until_s) == ("stopping", 1040.0)
    state = fold_all([TrainingEnded(1012.0, 143, ("99 uploader",))], state)
    assert (state.phase, state.exit_status, state.survivors) == ("ended", 143, ("99 uploader",))
    again = fold_all([Stopping(1013.0, 1043.0)], state)
    assert again.phase == "ended", "a stop that comes after the end does not bring the run back"


def test_what_has_ended_keeps_no_core_busy_and_no_batch_ready() -> None:
    busy = loader(workers=(11, 12), capacity=4)
    news = sample(1002.0, step=9, queue=(1, 4), cpu_main=0.9, cores_busy=(1.0, 0.5), doing="loader", doing_for_s=20.0)
    state = fold_all([*beginning(), LoadersSeen(1001.0, (busy,)), news, TrainingEnded(1003.0, 0)])
    assert state.latest == sample(1002.0, step=9)
    (told,) = status_of(state, 1004.0)["loaders"]
    assert (told["workers_alive"], told["queue"]) == (0, None)


def test_an_exit_status_that_was_lost_is_not_called_zero() -> None:
    state = fold_all([*beginning(), TrainingEnded(1012.0, None)])
    assert state.phase == "lost" and status_of(state, 1013.0)["exit_status"] is None


def test_a_probe_that_goes_and_comes_back_is_known_by_its_pid() -> None:
    state = fold_all([*beginning(), ProbeConnected(1002.0, 4711, "2.14.1", "3.11.2")])
    assert len(state.ranks) == 1
    state = fold_all([ProbeLost(1003.0, 4711)], state)
    assert (state.probe, state.ranks, state.torch) == ("lost", (), "2.14.1")


def test_counters_keep_their_last_value_through_samples_that_say_nothing() -> None:
    state = fold_all([*beginning(), sample(1001.0, step=7, epoch=2), sample(1001.5)])
    assert (state.step, state.epoch, state.optimizer_steps) == (7, 2, None)


def test_a_launcher_that_outlives_its_ranks_does_not_set_the_counters_back() -> None:
    state = fold_all(
        [*beginning(), sample(1001.0, step=36, epoch=3, optimizer_steps=36), sample(1001.5, step=0, epoch=0)]
    )
    assert (state.step, state.epoch, state.optimizer_steps) == (36, 3, 36)


def flood(count: int, every_s: float = 0.5) -> list[Event]:
    """So many looks at a run with everything in it, and more changes, epochs and output than anybody makes."""
    chance, events = random.Random(5), list(beginning())
    epoch, change = round(50 / every_s), round(100 / every_s)
    for number in range(count):
        at_s = BEGAN_S + number * every_s
        events.append(
            sample(at_s, step=number, steps=2, samples=16, wall_s=0.5, wait_s=0.2, forward_s=0.1, cpu_main=0.9)
        )
        if number % round(5 / every_s) == 0:
            events.append(block(at_s, number, 90.0 + 20.0 * chance.random(), change=f"c{number // change}"))
        if number % epoch == 0:
            events.append(EpochEnded(at_s, "train.py:41", number // epoch, 100, 800, 50.0, 60.0))
            events.append(OutputSeen(at_s, "loss 0.1", number))
        if number % change == 0:
            events.append(ChangeAsked(at_s, f"c{number // change}", {"num_workers": number % 7}))
            events.append(ChangeMoved(at_s, f"c{number // change}", "settling", number, in_force={"num_workers": 1}))
    return events


@pytest.mark.parametrize("every_s", [2.5, pytest.param(0.5, marks=pytest.mark.long)])
def test_a_state_stays_small_however_long_the_run_is(every_s: float) -> None:
    """Eleven hours, looked at less often than they are: what is kept goes by the time."""
    state, sizes = State(), []
    count = round(40_000 / every_s)
    events = flood(count, every_s)
    for number, event in enumerate(events, start=1):
        state = fold(state, event)
        if number in (len(events) // 2, len(events)):
            sizes.append(len(json.dumps(to_plain(state))))
    assert state.step == count - 1
    assert len(state.ledger) == LEDGER_LONGEST and len(state.epochs) == EPOCHS_LONGEST
    assert len(state.recent) == RECENT_LONGEST
    assert all(len(ring.points) <= ring.longest for ring in state.rings)
    # the coarsest ring is full only after twelve hours, so a little growth is left between six and twelve
    assert sizes[1] < 1.3 * sizes[0] and sizes[1] < 1_000_000


def test_the_fold_of_what_was_written_is_what_was_live() -> None:
    live, written = State(), State()
    for event in flood(3_000):
        line = json.dumps(event_to_plain(event), allow_nan=False)
        live, written = fold(live, event), fold(written, event_from_plain(json.loads(line)))  # type: ignore[arg-type]
    assert written == live


@settings(deadline=None, max_examples=40)
@given(some.integers(0, 10**6), some.integers(1, 300))
def test_a_fold_from_a_snapshot_is_the_fold_of_everything(seed: int, cut: int) -> None:
    events = random_story(seed)
    cut = cut % len(events)
    snapshot = json.loads(json.dumps(to_plain(fold_all(events[:cut]))))
    assert fold_all(events[cut:], from_plain(State, snapshot)) == fold_all(events)


def random_story(seed: int) -> list[Event]:
    """Any order of blocks, changes and their outcomes: orders that cannot happen as well."""
    chance, story = random.Random(seed), Story()
    events: list[Event] = list(beginning())
    for number in range(chance.randrange(5, 40)):
        word = chance.choice(("blocks", "asked", "applying", "settling", "refused", "rolled_back", "dropped", "sample"))
        change = f"c{chance.randrange(max(1, number // 3))}"
        if word == "blocks":
            story.change = chance.choice((None, story.change, change))
            events += story.blocks([100.0 + 10.0 * chance.random() for _ in range(chance.randrange(1, 9))])
        elif word == "asked":
            events.append(
                story.asked(change, {"num_workers": chance.randrange(5)}, origin=chance.choice(("person", "undo")))
            )
        elif word == "sample":
            events.append(sample(story.at_s, step=story.step, steps=1, samples=8, wall_s=0.5, wait_s=0.1))
        else:
            more: dict[str, Any] = {
                "before": {"num_workers": 0},
                "in_force": {"num_workers": 2},
                "capacity": 4,
            }
            events.append(story.moved(change, word, **more))
    if chance.random() < 0.3:
        events.append(TrainingEnded(story.at_s, chance.choice((0, 1, None))))
    return events


@settings(deadline=None, max_examples=60)
@given(some.integers(0, 10**6))
def test_every_state_has_a_status_rows_and_a_badge(seed: int) -> None:
    state = State()
    for event in random_story(seed):
        state = fold(state, event)
        activity = activity_of(state, event.at_s)
        assert activity.word in BADGES
        assert json.dumps(status_of(state, event.at_s), allow_nan=False)
        assert {row.name for row in knob_rows(state)} >= set(LOADER_KNOBS)
        for entry in state.ledger:
            assert (entry.delta_pct is None) == (entry.interval_pct is None)


def test_nothing_measured_is_null_and_never_zero() -> None:
    told = status_of(fold_all(beginning()), 1001.0)
    assert told["samples_per_s"] is None and told["step"] is None and told["epoch_s"] == {"now": None, "baseline": None}
    assert set(told["phases_ms"].values()) == {None}


def test_a_share_that_cannot_be_known_is_unknown() -> None:
    blind = block(1002.0, 20)
    told = status_of(fold_all([*beginning(), BlockMeasured(**{**vars(blind), "wait_s": None})]), 1003.0)
    assert told["phases_ms"]["wait"] is None and told["phases_ms"]["other"] is None
    assert told["phases_ms"]["forward"] == pytest.approx(8.0)


def test_the_live_rate_counts_only_time_in_which_steps_ended() -> None:
    state = fold_all([*beginning(), sample(1001.0, steps=2, samples=16, wall_s=0.4), sample(1001.5), sample(1002.0)])
    assert live_rate(state) == pytest.approx(40.0)


@pytest.mark.parametrize("step_s", [0.05, 0.3, 0.7, 1.1, 3.2, 7.9, 30.0])
def test_the_live_rate_is_true_however_long_a_step_takes(step_s: float) -> None:
    """Told in windows of half a second: most of them end no step, and all of them are its time."""
    state, done, seen, drawn = fold_all(beginning()), 0, [], []
    for window in range(1, int(max(60, 6 * step_s) / 0.5)):
        ended = int(window * 0.5 / step_s)
        steps = ended - done
        state = fold_all([sample(1001.0 + window / 2, steps=steps, samples=64 * steps, wall_s=0.5)], state)
        if window * 0.5 > max(12.0, 2 * step_s):
            seen.append(live_rate(state))
            drawn.append(state.rings[0].points[-1].samples_per_s or 0.0)
        done = ended
    assert seen == pytest.approx([64 / step_s] * len(seen), rel=0.12)
    assert min(drawn) > 0 and max(drawn) < 2.2 * 64 / step_s
    for _ in range(int(8 * max(step_s, 10.0))):
        state = fold_all([sample(state.at_s + 0.5, wall_s=0.5)], state)
    assert live_rate(state) is None, "no step for long: nothing is known of now"


def test_knob_rows_tell_script_asked_and_in_force() -> None:
    seen = loader(knobs=(knob("num_workers", 0), knob("pin_memory", False, can=False, reason="no accelerator")))
    state = fold_all(
        [*beginning(), LoadersSeen(1001.0, (seen, loader("train.py:52", "other", (knob("num_workers", 7),))))]
    )
    rows = {row.name: row for row in knob_rows(state)}
    assert (rows["num_workers"].script, rows["num_workers"].in_force, rows["num_workers"].state) == (
        0,
        0,
        "untouched",
    )
    assert rows["pin_memory"].reason == "no accelerator" and not rows["pin_memory"].can
    assert not rows["in_order"].can and rows["in_order"].in_force is None
    story = Story()
    state = fold_all([story.asked("c1", {"num_workers": 4})], state)
    row = {row.name: row for row in knob_rows(state)}["num_workers"]
    assert (row.asked, row.in_force, row.state, row.next) == (4, 0, "queued", 4)


def test_a_change_of_another_loader_does_not_show_on_the_training_loaders_row() -> None:
    loaders = (loader(), loader("train.py:52", "other"))
    state = fold_all([*beginning(), LoadersSeen(1001.0, loaders)])
    state = fold_all([Story().asked("c1", {"num_workers": 4}, loader="train.py:52")], state)
    row = {row.name: row for row in knob_rows(state)}["num_workers"]
    assert row.state == "untouched" and row.next is None
    state = fold_all([Story().asked("c2", {"num_workers": 3}, loader="train.py:41")], state)
    assert {row.name: row for row in knob_rows(state)}["num_workers"].next == 3


def test_loaders_that_differ_are_mixed_and_have_no_common_value() -> None:
    two = (loader(), loader("train.py:60", "train", (knob("num_workers", 0, 3),)))
    row = knob_rows(fold_all([*beginning(), LoadersSeen(1001.0, two)]))[0]
    assert row.mixed and row.in_force is None


def test_the_tuned_setup_is_what_differs_from_the_script_and_is_in_force() -> None:
    knobs = (knob("num_workers", 0, 4), knob("pin_memory", False), knob("in_order", True, False))
    state = fold_all([*beginning(), LoadersSeen(1001.0, (loader(knobs=knobs),))])
    assert tuned_setup(state) == {"num_workers": 4, "in_order": False}


def test_a_setup_from_the_start_is_queued_until_the_loader_has_it() -> None:
    begun = beginning(setup={"num_workers": 2})
    waiting = fold_all([*begun, LoadersSeen(1001.0, (loader(knobs=(KnobReport("num_workers", 0, None),)),))])
    there = fold_all([*begun, LoadersSeen(1001.0, (loader(knobs=(knob("num_workers", 0, 2),)),))])
    assert (knob_rows(waiting)[0].state, knob_rows(there)[0].state) == ("queued", "kept")
    own = fold_all([*beginning(setup={"num_workers": "script"}), LoadersSeen(1001.0, (loader(),))])
    assert knob_rows(own)[0].state == "untouched"


def test_activity_is_measuring_until_a_change_can_be_judged() -> None:
    story = Story()
    state = fold_all(beginning())
    assert activity_of(state, 1003.0).word == "warming"
    state = fold_all(story.blocks([50.0, 100.0, 100.0]), state)
    assert (activity_of(state, story.at_s).word, activity_of(state, story.at_s).done) == ("measuring", 2)
    state = fold_all(story.blocks(NOISY), state)
    assert activity_of(state, story.at_s).word == "steady"
    state = fold_all([story.asked("c1", {"num_workers": 2}), story.moved("c1", "applying")], state)
    assert activity_of(state, story.at_s).word == "switching"
    state = fold_all([story.moved("c1", "settling", in_force={"num_workers": 2})], state)
    assert activity_of(state, story.at_s).word == "measuring"
    state = fold_all([story.asked("c2", {"pin_memory": True}), story.moved("c2", "refused", reason="no")], state)
    assert activity_of(state, story.at_s).word == "measuring", "a refusal does not end the settling of the one in force"


def test_a_step_that_hangs_is_stalled_and_says_where() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY), sample(story.at_s, doing="loader", doing_for_s=60.0)])
    found = activity_of(state, story.at_s)
    assert (found.word, found.for_s, found.detail) == ("stalled", 60.0, "in loader")


@pytest.mark.parametrize(
    ("doing", "patient_s", "detail"),
    [
        ("loader", 9.0, "in loader"),
        ("loader_start", 9.0, "in loader start"),
        ("loader_end", 9.0, "in loader shutdown"),
        ("backward", 9.0, "in backward"),
        ("other", 9.0, "in step"),
        ("save", 59.0, "in save"),
        ("compile", 299.0, "in compile"),
    ],
)
def test_each_kind_has_its_patience_and_its_word(doing: str, patient_s: float, detail: str) -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY)])

    def after(for_s: float) -> Activity:
        return activity_of(fold_all([sample(story.at_s, doing=doing, doing_for_s=for_s)], state), story.at_s)

    calm, stalled = after(patient_s), after(patient_s + 2.0)
    assert calm.word == {"save": "saving", "compile": "compiling"}.get(doing, "steady")
    assert (stalled.word, stalled.for_s, stalled.detail) == ("stalled", patient_s + 2.0, detail)


@pytest.mark.parametrize(("doing", "patient_s"), [("save", 59.0), ("compile", 299.0)])
def test_a_quick_one_takes_no_patience_from_the_next(doing: str, patient_s: float) -> None:
    story = Story()
    quick = [sample(story.at_s, doing=doing, doing_for_s=2.0), sample(story.at_s + 0.5)]
    state = fold_all([*beginning(), *story.blocks(NOISY), *quick])
    assert (state.longest_s or {})[doing] == 2.0

    def after(for_s: float) -> str:
        return activity_of(fold_all([sample(story.at_s, doing=doing, doing_for_s=for_s)], state), story.at_s).word

    assert after(patient_s) != "stalled" and after(patient_s + 2.0) == "stalled"


def test_a_script_that_is_through_and_does_not_end_is_a_stall() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY), sample(story.at_s, doing="shutdown", doing_for_s=0.5)])
    state = fold_all([ProbeLost(story.at_s + 1.0, 4711), sample(story.at_s + 1.5)], state)
    assert activity_of(state, story.at_s + 9.0).word == "steady"
    found = activity_of(state, story.at_s + 30.0)
    assert (found.word, found.for_s, found.detail) == ("stalled", 30.5, "in shutdown")
    back = fold_all([ProbeConnected(story.at_s + 31.0, 4712, "2.14.1", "3.11.2")], state)
    assert activity_of(back, story.at_s + 60.0).word == "steady", "another process of the run goes on"


def test_what_has_taken_long_before_is_no_stall() -> None:
    """Saving for twenty seconds looks like a stall once; the next time it is the longest of its kind that counts."""
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY)])

    def saving(state: State, for_s: float) -> State:
        spell = [sample(story.at_s + at, doing="other", doing_for_s=at) for at in (0.4, for_s / 2, for_s)]
        return fold_all([*spell], state)

    once = saving(state, 20.0)
    assert activity_of(once, story.at_s + 20.0).word == "stalled"
    over = fold_all([sample(story.at_s + 20.5, doing="forward", doing_for_s=0.01)], once)
    assert over.longest_s == {"other": 20.0}
    again = saving(over, 60.0)
    assert activity_of(again, story.at_s + 60.0).word == "steady"
    assert activity_of(saving(over, 201.0), story.at_s + 201.0).word == "stalled"
    hung = fold_all([sample(story.at_s + 60.0, doing="loader", doing_for_s=30.0)], over)
    assert activity_of(hung, story.at_s + 60.0).detail == "in loader", "another kind has its own longest"


UNKNOWN = {
    "before the first block": (lambda story: [], "warming"),
    "while a change is applied": (
        lambda story: [*story.blocks(NOISY), story.asked("c1", {"num_workers": 2}), story.moved("c1", "applying")],
        "switching",
    ),
    "while the first change is applied, before any block": (
        lambda story: [story.asked("c1", {"num_workers": 2}), story.moved("c1", "applying")],
        "switching",
    ),
}


@pytest.mark.parametrize(("events", "calm"), UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("doing", ["loader", "loader_start", "backward", "other"])
def test_a_hang_is_told_of_where_nobody_knows_what_is_usual(events: Any, calm: str, doing: str) -> None:
    """Later than elsewhere, but told: the first steps may hang, and so may new workers before their first batch."""
    story = Story()
    state = fold_all([*beginning(), *events(story)])

    def after(for_s: float) -> Activity:
        at_s = story.at_s + for_s
        return activity_of(fold_all([sample(at_s, doing=doing, doing_for_s=for_s)], state), at_s)

    assert after(55.0).word == calm
    assert (after(62.0).word, after(62.0).for_s) == ("stalled", 62.0)


def test_workers_that_hang_after_a_change_are_a_stall() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY), *story.landed("c1", {"num_workers": 0}, {"num_workers": 2})])
    state = fold_all([sample(story.at_s + 15.0, doing="loader", doing_for_s=15.0)], state)
    assert not state.current.blocks and activity_of(state, story.at_s + 15.0).word == "stalled"


def test_what_was_dropped_and_saved_is_remembered() -> None:
    state = fold_all([*beginning(), EventsDropped(1.0, 3), EventsDropped(2.0, 4), SetupSaved(3.0, "/a/cockpit.toml")])
    assert (state.events_dropped, state.saved_path) == (7, "/a/cockpit.toml")


@pytest.mark.parametrize("name", KERNEL_KNOBS)
def test_one_knob_of_the_whole_training_that_is_asked_for_shows_them_all(name: str) -> None:
    """Before the probe has told of any: a list with one of them would look as though there were no others."""
    silent = fold_all(beginning())
    assert not {row.name for row in knob_rows(silent)} & set(KERNEL_KNOBS)
    asked = {"threads": 2, "matmul": "high", "autocast": "bf16", "compile": "default"}[name]
    for state in (
        fold_all([ChangeAsked(1002.0, "c1", {name: asked})], silent),
        fold_all(beginning(setup={name: asked})),
    ):
        rows = {row.name: row for row in knob_rows(state)}
        assert set(rows) >= set(KERNEL_KNOBS) and [row.name for row in rows.values() if row.asked] == [name]

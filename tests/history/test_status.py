"""``status --json`` keeps its contract: these keys, these words, null for what was not measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.events import NOISY, Story, beginning, knob, loader, sample

from cockpit.history.fold import fold_all
from cockpit.history.report import better_words, report_of, text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.events import LoadersSeen, OutputSeen, TrainingEnded

KEYS: dict[str, tuple[str, ...]] = {
    "": (
        "schema", "run", "state", "pid", "exit_status", "activity",
        "activity_s", "epoch", "step", "optimizer_steps", "probe", "epoch_s",
        "samples_per_s", "phases_ms", "loaders", "knobs", "ledger", "findings",
        "ceilings", "ranks", "machine", "probe_overhead_us_per_step", "events_dropped",
    ),
    "epoch_s": ("now", "baseline"),
    "phases_ms": ("wait", "copy", "forward", "backward", "optimizer", "other", "compile_total"),
    "loaders": (
        "id", "role", "epochs", "samples_by_epoch", "knobs", "workers_alive", "queue", "epoch_start_ms", "wait_kind",
    ),
    "knobs.num_workers": ("script", "asked", "in_force", "state", "reason", "can_now"),
    "ledger": (
        "at_step", "change", "outcome", "reason", "stall_ms", "before", "after", "delta_pct", "interval_pct", "verdict",
    ),
    "ledger.before": ("samples_per_s", "windows"),
    "ledger.after": ("samples_per_s", "windows"),
    "ceilings": ("model_samples_per_s", "data_samples_per_s"),
    "ranks": ("rank", "pid", "step", "wait_ms"),
    "machine": ("cpus_usable", "cpus_limited_by", "gpus"),
}  # fmt: skip
ACTIVITIES = ("warming", "compiling", "measuring", "steady", "switching", "saving", "stalled")


def changed() -> tuple[Story, State]:
    """A run with a change that was kept."""
    story = Story()
    seen = loader(knobs=(knob("num_workers", 0, 2),), workers=(11, 12), capacity=4, samples_by_epoch=(512,))
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY])])
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), state)
    return story, fold_all([*story.blocks([200.0] * 4), LoadersSeen(story.at_s, (seen,))], state)


def at(told: Any, path: str) -> dict[str, Any]:
    """The object at a dotted path; of a list its first item."""
    for name in filter(None, path.split(".")):
        told = told[name]
        told = told[0] if isinstance(told, list) else told
    return told


@pytest.mark.parametrize("path", KEYS)
def test_keys_that_others_rely_on(path: str) -> None:
    story, state = changed()
    told = json.loads(json.dumps(report_of(state, story.at_s)))
    assert set(KEYS[path]) <= set(at(told, path))


def test_the_line_of_a_kept_change() -> None:
    story, state = changed()
    line = status_of(state, story.at_s)["ledger"][0]
    assert line["change"] == {"num_workers": [0, 2]}
    assert (line["outcome"], line["verdict"], line["reason"]) == ("kept", "faster", None)
    low, high = line["interval_pct"]
    assert low < line["delta_pct"] < high and line["before"]["windows"] >= 6 and line["after"]["windows"] >= 2


def test_activity_is_one_of_the_promised_words_also_after_a_roll_back() -> None:
    story, state = changed()
    story_asked = [story.asked("c2", {"num_workers": 4}), story.moved("c2", "applying")]
    told = [status_of(fold_all(story_asked, state), story.at_s)["activity"]]
    back = fold_all([*story_asked, story.moved("c2", "rolled_back", reason="no")], state)
    told.append(status_of(back, story.at_s + 1.0)["activity"])
    assert told == ["switching", "steady"] and set(told) <= set(ACTIVITIES)


def test_a_queue_is_told_of_the_loader_that_has_it() -> None:
    idle, busy = loader("a.py:1"), loader("a.py:2", workers=(11,), capacity=2)
    news = sample(1002.0, queue=(1, 2), wait_kind="starved")
    one = status_of(fold_all([*beginning(), LoadersSeen(1001.0, (idle, busy)), news]), 1002.0)["loaders"]
    assert [(each["queue"], each["wait_kind"]) for each in one] == [(None, None), ([1, 2], "starved")]
    both = (loader("a.py:1", workers=(10,), capacity=2), busy)
    two = status_of(fold_all([*beginning(), LoadersSeen(1001.0, both), news]), 1002.0)["loaders"]
    assert [(each["queue"], each["wait_kind"]) for each in two] == [(None, None)] * 2


def test_what_runs_now_and_is_not_the_best_is_said_where_it_is_saved() -> None:
    story, state = changed()
    assert better_words(state) is None, "it is the best"
    state = fold_all(story.landed("c2", {"num_workers": 2}, {"num_workers": 8}), state)
    state = fold_all(story.blocks([20.0] * 4), state)
    assert better_words(state) == "what runs now gives 20.0 samples/s; the best seen was 200 with num_workers 0→2"
    story = Story()
    worse = fold_all([*beginning(), *story.blocks([50.0, *NOISY])])
    worse = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 8}), worse)
    worse = fold_all(story.blocks([20.0] * 4), worse)
    assert "the best seen was 100 before anything was changed" in (better_words(worse) or "")


def test_a_training_that_died_before_its_first_step_is_told_with_its_last_line() -> None:
    last = OutputSeen(1002.0, "ValueError: not enough values", 90)
    state = fold_all([*beginning(), last, TrainingEnded(1003.0, 1)])
    told = "it ended with status 1 before its first step; its last line: ValueError: not enough values"
    assert any(told in line for line in text_of(state, 1004.0))
    fine = fold_all([*beginning(), last, TrainingEnded(1003.0, 0)])
    assert "its last line" not in "\n".join(text_of(fine, 1004.0))

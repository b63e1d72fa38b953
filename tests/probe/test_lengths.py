"""Smaller batches make a loader longer: what the script made of its length once (a table, a schedule) ends before."""

from __future__ import annotations

from typing import Any

import pytest
from test_batch_knob import Training, reason, row, states

from cockpit.probe.lengths import MOST


def lengths_of(training: Any, times: int = 1) -> list[int]:
    return [len(training.loader) for _ in range(times)]


def test_a_table_made_before_the_training_forbids_smaller_batches_and_no_others(it):
    training = Training(it)
    table = lengths_of(training)
    it.ask("early", batch_size=2)
    training.epoch()
    assert training.epoch() == [4] * 6 and states(it, "early") == ["refused"]
    assert "test_lengths.py:" in reason(it, "early") and "asked len(loader) once" in reason(it, "early")
    it.ask("late", batch_size=3)
    assert states(it, "late") == ["refused"], "known by now: at once"
    it.ask("larger", batch_size=8)
    assert training.epoch() == [8] * 3
    it.ask("less", batch_size=6)
    assert training.epoch() == [6] * 4 and states(it, "less")[-1] == "settling", "no longer than the table"
    it.ask("back", batch_size="script")
    assert training.epoch() == [4] * 6 == [4] * table[0]


@pytest.mark.parametrize("where", ["before", "inside", "every step"])
def test_who_asks_anew_in_each_epoch_gets_the_new_length(it, where):
    training = Training(it)
    heard: list[int] = []
    for number in range(3):
        if where == "before":
            heard += lengths_of(training)
        if number == 1:
            it.ask("c1", batch_size=2)
        training.epoch()
        if where != "before":
            heard += lengths_of(training, 1 if where == "inside" else 2 * MOST)
    assert states(it, "c1")[-1] == "settling", reason(it, "c1")
    assert training.sizes[1:] == [[2] * 12] * 2 and heard[-1] == 12


def test_what_is_made_in_the_first_epoch_alone_counts_as_made_once(it):
    training = Training(it)
    training.epoch()
    lengths_of(training)
    training.epoch()
    training.epoch()
    it.ask("c1", batch_size=2)
    assert states(it, "c1") == ["refused"] and training.epoch() == [4] * 6


def test_what_is_set_from_the_start_is_refused_too_and_the_row_says_so(it):
    it.probe.asks.start({"set": {"batch_size": 2}})
    training = Training(it)
    lengths_of(training)
    assert [training.epoch(), training.epoch()] == [[4] * 6] * 2
    assert "asked len(loader) once" in row(it)["reason"]

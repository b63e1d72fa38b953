"""Smaller batches make a loader longer: what the script made of its length once (a table, a schedule) ends before."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from test_batch_knob import Training, reason, row, states

from cockpit.probe.lengths import MOST

RATES = """
table = [0.1] * (9 * len(loader))
def rate(step):
    return table[step]
"""
TOLD = """
print("trains on %d batches" % len(loader))
def rate(step):
    return 0.1
"""
_names = itertools.count()


@pytest.fixture
def script(tmp_path: Any) -> Any:
    """Runs a part of a script that has the training's loader, from a file of its own."""

    def ran(training: Any, source: str) -> dict[str, Any]:
        file = tmp_path / ("part%d.py" % next(_names))
        file.write_text(source)
        names = {"loader": training.loader}
        exec(compile(source, str(file), "exec"), names)
        return names

    return ran


def lengths_of(training: Any, times: int = 1) -> list[int]:
    return [len(training.loader) for _ in range(times)]


def test_a_table_made_before_the_training_forbids_smaller_batches_and_no_others(it, script):
    training = Training(it)
    script(training, RATES)
    it.ask("early", batch_size=2)
    training.epoch()
    assert training.epoch() == [4] * 6 and states(it, "early") == ["refused"]
    assert reason(it, "early").startswith("part") and ".py:2 made table of len(loader) once" in reason(it, "early")
    assert "line 4 would take what lies past its end" in reason(it, "early")
    it.ask("late", batch_size=3)
    assert states(it, "late") == ["refused"], "known by now: at once"
    it.ask("larger", batch_size=8)
    assert training.epoch() == [8] * 3
    it.ask("less", batch_size=6)
    assert training.epoch() == [6] * 4 and states(it, "less")[-1] == "settling", "no longer than the table"
    it.ask("back", batch_size="script")
    assert training.epoch() == [4] * 6


@pytest.mark.parametrize("how", ["printed", "kept, and nobody sees for what"])
def test_who_asked_once_and_may_mean_no_harm_is_told_of_and_forbids_nothing(it, script, how):
    training = Training(it)
    if how == "printed":
        script(training, TOLD)
    else:
        training.schedule = lengths_of(training)
    training.epoch()
    it.ask("c1", batch_size=2)
    it.beat()
    assert "asks len(loader)" in row(it)["note"] and "will be refused" not in row(it)["note"]
    assert training.epoch() == [2] * 12 and states(it, "c1")[-1] == "settling"


@pytest.mark.parametrize("where", ["before", "inside", "every step"])
def test_who_asks_anew_in_each_epoch_gets_the_new_length(it, where, tmp_path):
    training = Training(it)
    heard: list[int] = []
    (tmp_path / "each.py").write_text(RATES)
    each = compile(RATES, str(tmp_path / "each.py"), "exec")  # one line, that makes its table anew
    for number in range(3):
        if where == "before":
            exec(each, {"loader": training.loader})
            heard += lengths_of(training)
        if number == 1:
            it.ask("c1", batch_size=2)
        training.epoch()
        if where != "before":
            exec(each, {"loader": training.loader})
            heard += lengths_of(training, 1 if where == "inside" else 2 * MOST)
    assert states(it, "c1")[-1] == "settling", reason(it, "c1")
    assert training.sizes[1:] == [[2] * 12] * 2 and heard[-1] == 12


def test_what_is_made_in_the_first_epoch_alone_counts_as_made_once(it, script):
    training = Training(it)
    training.epoch()
    script(training, RATES)
    training.epoch()
    training.epoch()
    it.ask("c1", batch_size=2)
    assert states(it, "c1") == ["refused"] and training.epoch() == [4] * 6


def test_what_is_set_from_the_start_is_refused_too_and_the_row_says_so(it, script):
    it.probe.asks.start({"set": {"batch_size": 2}})
    training = Training(it)
    script(training, RATES)
    assert [training.epoch(), training.epoch()] == [[4] * 6] * 2
    assert "made table of len(loader) once" in row(it)["reason"]

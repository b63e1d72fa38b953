"""What torch compiled stands beside a trial, in no figure of it: in status, ledger and report, None where not known."""

from __future__ import annotations

import pytest
from support.events import NOISY, Story, beginning

from cockpit.cli.progress import Progress
from cockpit.history.compiled import words
from cockpit.history.fold import fold, fold_all
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.compiled import CompiledSeen
from cockpit.model.events import EpochEnded


def compiled(story: Story) -> State:
    """A kept trial of compile, and one more compilation at a smaller batch after it."""
    state = fold_all([*beginning(), *story.blocks(NOISY), CompiledSeen(story.at_s, 0.0, 0, 0)])
    state = fold_all([story.asked("c1", {"compile": "default"}), story.moved("c1", "applying")], state)
    state = fold(state, CompiledSeen(story.at_s, 12.0, 2, 0))
    state = fold(state, story.moved("c1", "settling", before={"compile": "script"}, in_force={"compile": "default"}))
    state = fold_all(story.blocks([200.0] * 4), state)
    return fold(state, CompiledSeen(story.at_s, 14.2, 3, 1))


def test_of_the_run_and_of_the_trial() -> None:
    story = Story()
    state = compiled(story)
    told = status_of(state, story.at_s)
    assert told["compile"] == {"total_s": 14.2, "graphs": 3, "recompiles": 1}
    assert told["phases_ms"]["compile_total"] == 14200.0
    assert told["ledger"][0]["compiled"] == {"total_s": 14.2, "graphs": 3, "recompiles": 1}
    assert told["ledger"][0]["outcome"] == "kept"
    text = text_of(state, story.at_s)
    assert any("compile" in line and "compiled for 14 s, 3 graphs, 1 recompile" in line for line in text[:5])
    assert "compiled for 14 s" in Progress().said(state, story.at_s)[0]


def test_before_any_change_it_is_the_scripts_own() -> None:
    story = Story()
    state = fold_all([*beginning(), CompiledSeen(1001.0, 3.0, 1, 0), *story.blocks(NOISY)])
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), state)
    told = status_of(state, story.at_s)
    assert told["compile"]["total_s"] == 3.0 and told["ledger"][0]["compiled"] is None
    assert any("torch compiled for 3.0 s, 1 graph" in line for line in text_of(state, story.at_s))


def test_what_nobody_could_watch_is_not_known_and_never_0() -> None:
    state = fold_all(beginning())
    assert status_of(state, 1001.0)["compile"] == {"total_s": None, "graphs": None, "recompiles": None}
    assert status_of(state, 1001.0)["phases_ms"]["compile_total"] is None
    late = fold(state, CompiledSeen(1002.0, None, 4, None))
    assert status_of(late, 1002.0)["compile"] == {"total_s": None, "graphs": 4, "recompiles": None}
    assert any("torch compiled, 4 graphs:" in line for line in text_of(late, 1003.0))
    none = fold(state, CompiledSeen(1002.0, 0.0, 0, 0))
    assert status_of(none, 1002.0)["phases_ms"]["compile_total"] == 0.0, "measured zero"
    assert not any("compiled" in line for line in text_of(none, 1003.0))


def test_what_failed_has_its_own_time_and_another_process_none_of_it() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY), CompiledSeen(story.at_s, 1.0, 1, 0)])
    state = fold_all([story.asked("c1", {"compile": "default"}), story.moved("c1", "applying")], state)
    state = fold(state, story.moved("c1", "rolled_back", reason="no compiler"))
    state = fold(state, CompiledSeen(story.at_s + 0.1, 6.0, 2, 0))
    assert state.ledger[0].compiled_s == 5.0
    other = fold(state, CompiledSeen(story.at_s + 0.2, 0.5, 1, 0))
    assert other.ledger == state.ledger and other.compiled == CompiledSeen(story.at_s + 0.2, 0.5, 1, 0)


@pytest.mark.parametrize(("whole", "epoch_s"), [(True, 9.0), (False, None)])
def test_an_epoch_in_whose_middle_something_changed_is_nobodys(whole: bool, epoch_s: float | None) -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY), EpochEnded(story.at_s, "a.py:1", 0, 10, 80, 20.0, 5.0)])
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), state)
    state = fold(state, EpochEnded(story.at_s, "a.py:1", 1, 10, 80, 9.0, 5.0, whole=whole))
    assert status_of(state, story.at_s)["epoch_s"] == {"now": epoch_s, "baseline": None}


def test_words() -> None:
    assert words(None, None, None) == words(0.0, 0, 0) == ""
    assert words(0.04, 1, 0) == "compiled for under 0.1 s, 1 graph, 0 recompiles"
    assert words(3.25, 2, 1) == "compiled for 3.2 s, 2 graphs, 1 recompile"

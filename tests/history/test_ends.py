"""How the training ended under a change: said as it was, for every kind of change; never where it was no trouble."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import Story, beginning

from cockpit.history.ends import IN_THE_MIDDLE, NOT_MEASURED
from cockpit.history.fold import fold_all
from cockpit.history.knobs import knob_rows
from cockpit.history.report import text_of, trial_line
from cockpit.history.state import Entry, State
from cockpit.history.status import ledger_line
from cockpit.history.trials import entry_of
from cockpit.model.crash import SessionSeen
from cockpit.model.events import ChangeMoved, Stopping, TrainingEnded
from cockpit.model.knobs import ANEW, RESTART, Value

KINDS: dict[str, dict[str, Value]] = {
    "loader": {"num_workers": 4},
    "batch": {"batch_size": 64},
    "kernel": {"autocast": "bf16"},
}


def under(knobs: dict[str, Value], steps: int, *, landed: bool = True, told: bool = True) -> tuple[Story, State]:
    """A training that went on for ``steps`` after it came into force; ``told``: the probe has said that it leaves."""
    story = Story()
    state = fold_all([*beginning(), *story.blocks([100.0] * 9)])
    state = fold_all([story.asked("c1", knobs), story.moved("c1", "applying", before={}, in_force={})], state)
    if landed:
        state = fold_all([story.moved("c1", "settling", before={}, in_force=knobs)], state)
    entry = found(state)
    assert entry.at_step is not None
    return story, replace(state, step=entry.at_step + steps, leaving_s=story.at_s if told else None)


def found(state: State) -> Entry:
    entry = entry_of(state, "c1")
    assert entry is not None
    return entry


@pytest.mark.parametrize("landed", [False, True], ids=["applying", "settling"])
@pytest.mark.parametrize(
    "status, told, steps, words",
    [
        (1, True, 0, "the training ended with status 1 in the first step under this"),
        (1, True, 1, "the training ended with status 1, 1 step after this came into force"),
        (3, True, 12, "the training ended with status 3, 12 steps after this came into force"),
        (137, False, 2, "the training ended with status 137 (SIGKILL), 2 steps or a few more after this"),
        (139, False, 0, "the training ended with status 139 (SIGSEGV), 0 steps or a few more after this"),
    ],
)
@pytest.mark.parametrize("knobs", KINDS.values(), ids=KINDS)
def test_how_it_ended_is_said_with_the_change_that_it_ended_under(
    knobs: dict[str, Value], status: int, told: bool, steps: int, words: str, landed: bool
) -> None:
    story, state = under(knobs, steps, landed=landed, told=told)
    state = fold_all([TrainingEnded(story.at_s, status)], state)
    entry = found(state)
    assert entry.reason is not None and entry.reason.startswith(words)
    assert ledger_line(entry)["outcome"] == "ended" and entry.verdict == "not_comparable"
    assert "ended" in trial_line(entry) and words in "\n".join(text_of(state, story.at_s))
    for row in knob_rows(state):
        assert row.name not in knobs or (row.reason or "").startswith(words)


@pytest.mark.parametrize("knobs", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("how", ["through", "stopped", "lost"])
def test_an_end_that_is_no_trouble_of_it_is_none(how: str, knobs: dict[str, Value]) -> None:
    story, state = under(knobs, 2)
    events = {
        "through": [TrainingEnded(story.at_s, 0)],
        "stopped": [Stopping(story.at_s, story.at_s + 30.0), TrainingEnded(story.at_s, 143)],
        "lost": [TrainingEnded(story.at_s, None)],
    }[how]
    entry = found(fold_all(events, state))
    assert (entry.state, entry.reason) == ("settling", NOT_MEASURED)
    assert ledger_line(entry)["outcome"] is None


def test_what_is_kept_already_is_not_what_it_ended_under() -> None:
    story, state = under(KINDS["loader"], 3)
    state = replace(state, ledger=tuple(replace(entry, state="kept") for entry in state.ledger))
    assert found(fold_all([TrainingEnded(story.at_s, 1)], state)).state == "kept"


def test_the_end_in_the_middle_is_never_called_not_applied() -> None:
    story, state = under(KINDS["loader"], 0, landed=False)
    entry = found(fold_all([TrainingEnded(story.at_s, 0)], state))
    assert entry.reason == IN_THE_MIDDLE and "applied" not in entry.reason and entry.state == "settling"


def test_what_was_to_be_known_of_it_stays_beside_it() -> None:
    story, state = under(KINDS["kernel"], 2)
    state = replace(state, ledger=tuple(replace(entry, reason="measured together with x") for entry in state.ledger))
    reason = found(fold_all([TrainingEnded(story.at_s, 1)], state)).reason
    assert reason == "the training ended with status 1, 2 steps after this came into force; measured together with x"


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (1, None, "the training ended with status 1 before a step of the new process was seen"),
        (137, None, "the training ended with status 137 (SIGKILL) before a step of the new process was seen"),
        (75, "no hand-off can be used", "before a step of the new process was seen: no hand-off can be used"),
        (1, "no hand-off can be used", "the training ended with status 1 before a step of the new process was seen"),
    ],
)
def test_steps_of_the_process_before_are_none_of_the_new_ones(status: int, reason: str | None, words: str) -> None:
    """What had been counted is past the hand-off that the new process was to go on from."""
    story = Story()
    state = fold_all([*beginning(), *story.blocks([100.0] * 9)])
    state = fold_all([story.asked("c1", {RESTART: ANEW}), ChangeMoved(story.at_s, "c1", "applying", step=3)], state)
    state = fold_all([SessionSeen(story.at_s, ("model",), reason=reason), TrainingEnded(story.at_s, status)], state)
    entry = found(state)
    assert entry.state == "ended" and (entry.reason or "").endswith(words), entry.reason

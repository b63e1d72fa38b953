"""What a restart means and what follows: pure decisions, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cockpit.engine.restart_plan import Move, Standing, Tell, View, next_of, wanted, why_cold
from cockpit.history.fold import fold
from cockpit.history.restart import newest
from cockpit.history.state import Entry, State
from cockpit.model.environment import AS_BEGAN
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeMoved, ProbeConnected
from cockpit.model.knobs import ANEW, RESTART, UNSET

STATE = State(run="it", phase="running", script="train.py", step=96, started_s=0.0, at_s=300.0)
STANDING = Standing(
    session={"names": ["model"]},
    speaker=7,
    started=7,
    program="python",
    environ={"OMP_NUM_THREADS": "1", "PYTHONPATH": "/ours:/theirs", "COCKPIT_LIFE": "/old"},
)
ENTRY = Entry(id="c1", asked={"env OMP_NUM_THREADS": "4"}, asked_s=1.0, state="queued")


def test_the_new_environment_is_the_old_one_but_for_what_was_asked() -> None:
    found = wanted(STATE, STANDING, {"OMP_NUM_THREADS": "4", "NEW": ""}, "/ours")
    assert found.asked == {"env OMP_NUM_THREADS": "4", "env NEW": ""}
    assert found.before == {"env OMP_NUM_THREADS": "1", "env NEW": None}
    assert found.environ == {"OMP_NUM_THREADS": "4", "NEW": "", "PYTHONPATH": "/ours:/theirs"}


def test_our_own_folder_stays_in_front_and_is_nobodys_business() -> None:
    found = wanted(STATE, STANDING, {"PYTHONPATH": "/more"}, "/ours")
    assert found.environ["PYTHONPATH"] == "/ours:/more" and found.before == {"env PYTHONPATH": "/theirs"}
    assert wanted(STATE, STANDING, {"PYTHONPATH": None}, "/ours").environ["PYTHONPATH"] == "/ours"


SECRET = replace(STANDING, environ={"TOKEN": "s3cret", "PYTHONPATH": "/ours"})


def test_a_value_that_nobody_gave_is_told_to_nobody_and_comes_back_all_the_same() -> None:
    """Asked for, asked for again, overruled, taken back: only what was given stands in what is written down."""
    state, first = STATE, wanted(STATE, SECRET, {"TOKEN": "mine"}, "/ours")
    assert first.before == {"env TOKEN": AS_BEGAN} and first.environ["TOKEN"] == "mine"
    state = replace(STATE, environment={"TOKEN": (AS_BEGAN, "mine")})
    second = wanted(state, replace(SECRET, environ=first.environ), {"TOKEN": "other"}, "/ours")
    assert second.before == {"env TOKEN": "mine"}, "what was given is shown"
    state = replace(STATE, environment={"TOKEN": (AS_BEGAN, "other")})
    back = wanted(state, replace(SECRET, environ=second.environ), {"TOKEN": AS_BEGAN}, "/ours")
    assert (back.asked, back.before) == ({"env TOKEN": AS_BEGAN}, {"env TOKEN": "other"})
    assert back.environ == SECRET.environ
    told = [*first.asked.values(), *first.before.values(), *back.asked.values(), *back.before.values()]
    assert "s3cret" not in map(str, told)
    entry = replace(ENTRY, asked=back.asked, state="applying")
    landed = next_of(entry, replace(GONE, stepped_s=101.5, env={"TOKEN": "s3cret"}))
    assert isinstance(landed, Move) and landed.reason is None and landed.in_force == {"env TOKEN": AS_BEGAN}
    ruled = next_of(replace(entry, asked={"env TOKEN": "x"}), replace(GONE, stepped_s=101.5, env={"TOKEN": "s3cret"}))
    assert isinstance(ruled, Move) and ruled.reason == "no effect: TOKEN is another in it"
    assert ruled.in_force == {"env TOKEN": AS_BEGAN}


def test_what_nobody_knows_any_more_is_not_taken_away_for_it() -> None:
    state = replace(STATE, environment={"TOKEN": (AS_BEGAN, "mine")})
    with pytest.raises(CockpitError, match="nobody knows any more"):
        wanted(state, replace(SECRET, environ={"TOKEN": "mine"}), {"TOKEN": AS_BEGAN}, "/ours")


def test_what_was_not_set_comes_back_as_not_set() -> None:
    state = replace(STATE, environment={"NEW": (None, "1")})
    back = wanted(state, replace(STANDING, environ={"NEW": "1"}), {"NEW": None}, "/ours")
    assert (back.asked, back.environ) == ({"env NEW": UNSET}, {})


def test_taking_away_and_changing_nothing() -> None:
    found = wanted(STATE, STANDING, {"OMP_NUM_THREADS": None}, "/ours")
    assert found.asked == {"env OMP_NUM_THREADS": UNSET} and "OMP_NUM_THREADS" not in found.environ
    assert wanted(STATE, STANDING, {}, "/ours").asked == {RESTART: ANEW}


RANKS = (ProbeConnected(0.0, 7, "2", "3", rank=0, world=2),)
UNDER_WAY = replace(STATE, ledger=(ENTRY,))


@pytest.mark.parametrize(
    ("state", "standing", "env", "words"),
    [
        (STATE, STANDING, {"OMP_NUM_THREADS": "1"}, "OMP_NUM_THREADS is 1 already"),
        (STATE, STANDING, {"GONE": None}, "GONE is not set"),
        (STATE, STANDING, {"A=B": "1"}, "no name"),
        (STATE, STANDING, {"COCKPIT_RUN": "1"}, "cockpit's own"),
        (STATE, STANDING, {"A": "x" * 200_000}, "cannot hold"),
        (STATE, STANDING, {"A": "\udcff"}, "is no text"),
        (STATE, STANDING, {"PYTHONUNBUFFERED": None}, "cockpit's own"),
        (STATE, STANDING, {"OMP_NUM_THREADS": AS_BEGAN}, "as it began"),
        (replace(STATE, phase="ended"), STANDING, {}, "has ended"),
        (replace(STATE, phase="stopping"), STANDING, {}, "is stopping"),
        (replace(STATE, phase="paused"), STANDING, {}, "is paused"),
        (replace(STATE, ranks=RANKS), STANDING, {}, "several ranks"),
        (UNDER_WAY, STANDING, {}, "already under way"),
        (replace(STATE, step=None), STANDING, {}, "no step"),
        (STATE, replace(STANDING, speaker=None), {}, "no probe that trains"),
        (STATE, replace(STANDING, session=None), {}, "96 steps, 5 min 00 s of training, would be lost"),
        (STATE, replace(STANDING, session={"reason": "the loop is through"}), {}, "the loop is through"),
        (STATE, replace(STANDING, started=6, program="bash"), {}, "started by bash"),
        (STATE, replace(STANDING, environ=None), {}, "cannot be read"),
        (STATE, replace(STANDING, set_early=("TF32",)), {"TF32": "1"}, "train.py sets TF32 itself"),
    ],
)
def test_refused_with_the_reason(state: State, standing: Standing, env: dict[str, str | None], words: str) -> None:
    with pytest.raises(CockpitError, match=words):
        wanted(state, standing, env, "/ours")


READY = {"torch": True, "private_dirty_kb": 90_000, "private_clean_kb": 10_000}
GO = {"handoff": "1", "step": 96, "at_s": 100.0}
WAITS = View(folder=True, keeper=True, ready=READY, noted=True)
APPLYING = replace(ENTRY, state="applying")
GONE = replace(WAITS, go=GO, told=True)


@pytest.mark.parametrize(
    ("entry", "view", "state"),
    [
        (ENTRY, View(), "refused"),
        (ENTRY, View(folder=True, keeper=True), None),
        (ENTRY, View(folder=True), "refused"),
        (ENTRY, replace(WAITS, noted=False), "queued"),
        (ENTRY, WAITS, "tell"),
        (ENTRY, replace(WAITS, told=True), None),
        (ENTRY, replace(WAITS, failed="the disk is full"), "refused"),
        (ENTRY, replace(WAITS, status=70, keeper=False), "refused"),
        (ENTRY, replace(WAITS, status=0, keeper=False), None),
        (ENTRY, replace(WAITS, go={"refused": "x"}, told=True), None),
        (ENTRY, GONE, "applying"),
        (APPLYING, GONE, None),
        (APPLYING, replace(GONE, stepped_s=101.5), None),
        (APPLYING, replace(GONE, stepped_s=101.5, env={"OMP_NUM_THREADS": "4"}), "settling"),
        (ENTRY, replace(WAITS, go={"refused": "x", "by_script": True}, told=True, status=0, keeper=False), "refused"),
        (APPLYING, replace(GONE, back=9), "applying"),
        (APPLYING, replace(GONE, back=9, back_stepped=True), "rolled_back"),
        (APPLYING, replace(GONE, back=9, back_stepped=True, status=0), "rolled_back"),
        (APPLYING, replace(GONE, back=9, status=75), "ended"),
        (APPLYING, replace(GONE, status=9), None),
    ],
)
def test_what_follows(entry: Entry, view: View, state: str | None) -> None:
    found = next_of(entry, view)
    assert (found.state if isinstance(found, Move) else "tell" if isinstance(found, Tell) else None) == state


def test_what_is_told() -> None:
    note = next_of(ENTRY, replace(WAITS, noted=False))
    assert isinstance(note, Move) and "97 MB of its own" in (note.note or "")
    for torch, why, words in ((True, [], "torch is imported"), (False, ["bash runs first"], "itself: bash runs first")):
        note = next_of(ENTRY, replace(WAITS, noted=False, ready={"torch": torch, "why": why}))
        assert isinstance(note, Move) and f"({words})" in (note.note or "").replace("the script imports torch ", "")
    landed = next_of(APPLYING, replace(GONE, stepped_s=101.5, env={"OMP_NUM_THREADS": "4"}))
    assert isinstance(landed, Move) and (landed.stall_ms, landed.step, landed.reason) == (1500.0, 96, None)
    overruled = next_of(APPLYING, replace(GONE, stepped_s=101.5, env={"OMP_NUM_THREADS": "1"}))
    assert isinstance(overruled, Move) and overruled.reason == "no effect: OMP_NUM_THREADS is 1 in it"
    died = next_of(ENTRY, replace(WAITS, status=70, words="ImportError: no"))
    assert (
        isinstance(died, Move)
        and died.reason == "the new process ended with status 70 before its turn: ImportError: no"
    )
    back = next_of(APPLYING, replace(GONE, back=9, back_stepped=True))
    assert isinstance(back, Move) and "status 9 before its first step" in (back.reason or "")
    gone = next_of(ENTRY, replace(WAITS, go={"refused": "train.py is gone", "by_script": True}))
    assert isinstance(gone, Move) and gone.reason == "the script could not begin again: train.py is gone"


def test_nothing_is_said_to_go_on_before_it_does() -> None:
    """The way back runs the same script: it may fail as the new process did, and then the run is over."""
    failed = replace(GONE, back=1, error="FileExistsError: out", go={**GO, "handoff": "/runs/it/handoff/3"})
    begins = next_of(APPLYING, failed)
    assert isinstance(begins, Move) and (begins.state, begins.reason) == ("applying", None)
    assert begins.note == (
        "the new process ended with status 1 before its first step (FileExistsError: out): "
        "it begins once more, as it was before"
    )
    assert next_of(replace(APPLYING, note=begins.note), failed) is None, "said once"
    over = next_of(replace(APPLYING, note=begins.note), replace(failed, status=1))
    assert isinstance(over, Move) and (over.reason or "").endswith(
        "and so did the one that began as it was before (status 1); hand-off 3 is left"
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lingered_s": 1.0, "lingers": True}, None),
        ({"lingered_s": 1.0}, None),
        ({"lingered_s": 7.0, "lingers": True}, "the process before has handed over; it has not ended yet"),
        ({"lingered_s": 7.0}, "the process before has handed over; it took 7 s to end"),
        ({"held": "a.py:9"}, "the process before has handed over; its script catches every exception round its loop ("),
        ({"held": "a.py:9", "lingered_s": 9.0}, "(a.py:9), so it ends at its next save, step or call of a model; it t"),
    ],
)
def test_a_process_that_does_not_end_once_it_has_handed_over_is_told_of(
    more: dict[str, Any], words: str | None
) -> None:
    """While it keeps the new one waiting, and where that has come into force."""
    waits = next_of(APPLYING, replace(GONE, **more))
    landed = next_of(APPLYING, replace(GONE, stepped_s=101.5, env={"OMP_NUM_THREADS": "4"}, **more))
    assert isinstance(landed, Move) and landed.state == "settling"
    if words is None:
        assert waits is None and landed.note is None
        return
    assert isinstance(waits, Move) and waits.state == "applying" and words in (waits.note or "")
    assert words in (landed.note or "")
    assert next_of(replace(APPLYING, note=waits.note), replace(GONE, **more)) is None, "said once"
    event = ChangeMoved(2.0, "c1", "applying", note=waits.note)
    stage = newest(fold(replace(STATE, ledger=(APPLYING,)), event))
    assert stage is not None and stage.word == "first step" and (waits.note or "") in stage.words


def test_torch_is_imported_beforehand_unless_the_script_sets_what_it_reads() -> None:
    assert not why_cold(()) and not why_cold(["TOKENIZERS_PARALLELISM", "WANDB_MODE"])
    assert why_cold(["WANDB_MODE", "OMP_NUM_THREADS"]) == ["it sets OMP_NUM_THREADS first"]

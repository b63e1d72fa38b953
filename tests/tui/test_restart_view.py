"""The view of hot restarts: what it shows at each moment, and that nothing restarts on one key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tui import scenes
from tui.test_app import run, seated

from cockpit.history import restart
from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.model.crash import Crashed, HandoffSeen, SessionSeen
from cockpit.model.events import (
    ChangeAsked,
    ChangeMoved,
    Event,
    ProbeConnected,
    ProbeLost,
    ProcessStarted,
    Sampled,
    TrainingEnded,
)
from cockpit.model.knobs import UNSET
from cockpit.tui.draft import Draft
from cockpit.tui.frame import frame
from cockpit.tui.head import activity_shown, change_row
from cockpit.tui.restart import confirm_rows
from cockpit.tui.rows import text_of, width_of
from cockpit.tui.settings import hint_rows
from cockpit.tui.trials import trials_rows
from cockpit.tui.view import View
from cockpit.tui.wishes import why_not

VALUES = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": None, "MINE": "(as it began)"}
FINE = {"reason": None, "values": VALUES, "names": ["model", "optimizer"]}
NOTE = "the new process is ready (torch is imported, 285 MB of its own); the training hands over when its epoch ends"
FAILED = "the new process ended with status 9 before its first step; goes on from the hand-off as it was before"


def asked(knobs: Mapping[str, Any]) -> tuple[State, float]:
    state, now_s = scenes.early(60.0)
    return fold_all([ChangeAsked(now_s, "r", knobs)], state), now_s


def moved(now_s: float, *, until: str) -> list[Event]:
    """All that happens up to this stage."""
    moves: dict[str, list[Event]] = {
        "preparing": [],
        "ready": [ChangeMoved(now_s, "r", "queued", note=NOTE)],
        "first step": [
            ChangeMoved(now_s, "r", "applying", step=400), ProbeLost(now_s, 4711), ProcessStarted(now_s, 4712),
        ],
        "settling": [
            ChangeMoved(
                now_s, "r", "settling", 400, 900.0, 20,
                before={"env OMP_NUM_THREADS": "2"}, in_force={"env OMP_NUM_THREADS": "4"},
            )
        ],
    }  # fmt: skip
    names = list(moves)
    return [event for name in names[: names.index(until) + 1] for event in moves[name]]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 16)])
def test_each_stage_is_said_and_the_line_of_the_last_change_stays(size: tuple[int, int]) -> None:
    state, now_s = asked({"env OMP_NUM_THREADS": "4"})
    before = text_of([change_row(View(state, now_s), size[0])])
    for stage in ("preparing", "ready", "first step", "settling"):
        seen = fold_all(moved(now_s, until=stage), state)
        text = text_of(frame(View(seen, now_s + 5.0, restart=Draft().answered(FINE)), *size))
        assert stage.upper() in text, text
        found = restart.newest(seen)
        assert found is not None and found.word == stage and found.pending is (stage != "settling")
        live = View(seen, now_s + 5.0)
        if stage != "settling":
            assert text_of([change_row(live, size[0])]) == before
            assert "restart " in text_of(hint_rows(live, size[0], 1)), "and below the settings"
        if stage == "first step":  # no process is heard for a moment: that is no loss
            assert activity_shown(live).word == "switching"
            assert "no longer heard" not in text_of(frame(live, *size))
    assert "OMP_NUM_THREADS 2→4" in text_of([change_row(View(seen, now_s), size[0])])


def test_while_the_hand_off_is_written_it_says_so() -> None:
    state, now_s = asked({"env MINE": UNSET})
    ready = fold_all(moved(now_s, until="ready"), state)
    assert ready.latest is not None
    saving = scenes.with_phase(ready, latest=scenes.replace(ready.latest, doing="save"))
    found = restart.newest(saving)
    assert found is not None and found.word == "handing over" and found.can_drop
    assert "HANDING OVER" in text_of(frame(View(saving, now_s, restart=Draft().answered(FINE)), 80, 24))


def test_one_that_came_back_says_why_and_what_it_was_about() -> None:
    state, now_s = asked({"env OMP_NUM_THREADS": "4"})
    back = ChangeMoved(now_s, "r", "rolled_back", 400, before={"env OMP_NUM_THREADS": "2"}, reason=FAILED)
    state = fold_all([*moved(now_s, until="first step"), back], state)
    text = text_of(frame(View(state, now_s, restart=Draft().answered(FINE)), 80, 24))
    assert "rolled back" in text and "goes on from the hand-off" in " ".join(text.split())
    assert "OMP_NUM_THREADS" in text_of([change_row(View(state, now_s), 80)])


def test_it_says_what_it_costs_or_why_not_and_shows_no_value_that_nobody_gave() -> None:
    state, now_s = scenes.early(60.0)

    def shown(draft: Draft, width: int = 80) -> str:
        return " ".join(text_of(frame(View(state, now_s, restart=draft), width, 24)).split())

    assert "asking the engine" in shown(Draft())
    fine = shown(Draft({"MINE": "7", "OMP_NUM_THREADS": None}).answered(FINE))
    assert "no step is lost: model, optimizer, random states go along; what was not given begins anew" in fine
    assert "when its epoch ends, in" in fine and "can be called off" in fine
    assert "MINE (as it began) →7" in fine and "OMP_NUM_THREADS 2 →(not set)" in fine
    order = "A set of strings has another order in the new process: PYTHONHASHSEED is not fixed"
    assert order not in fine and order in shown(Draft().answered({**FINE, "other_hashes": True}))
    why = "train.py does not call cockpit.session: 400 steps would be lost"
    assert why in shown(Draft(answer={"reason": why}))
    assert "goes on from epoch_3.pt: 40 steps lost" in shown(
        Draft(answer={**FINE, "goes_on": "goes on from epoch_3.pt: 40 steps lost"})
    )
    assert "the script sets OMP_NUM_THREADS itself" in shown(Draft(answer={**FINE, "set_early": ["OMP_NUM_THREADS"]}))
    lines = shown(Draft({"MINE": "a\nb"}).answered(FINE))
    assert "→a\\nb" in lines, "a value is whole, and on its line"
    box = text_of(confirm_rows(View(state, now_s), Draft({"OMP_NUM_THREADS": "8"}).answered(FINE), 80, 24))
    assert "OMP_NUM_THREADS 2 → 8" in " ".join(box.split()) and "no step is lost" in box


CRASHED = Crashed(
    0.0, 137, "killed (SIGKILL)", 400, "the hand-off after 3 epochs", "hand-off 3", 34, offered=True, change="r",
)  # fmt: skip
GOES_ON = {"reason": None, "goes_on": "goes on from the hand-off after 3 epochs: 34 steps or a few more are lost"}


def test_after_a_crash_it_says_what_ended_it_what_follows_and_what_is_lost() -> None:
    """Waiting for the next try, and once the run has ended: below the settings in short, in the view in full."""
    state, now_s = scenes.early(60.0)
    waits = replace(CRASHED, at_s=now_s, number=1, of=3, next_s=now_s + 5.0)
    note = "killed (SIGKILL), at step 400; goes on from the hand-off after 3 epochs"
    asked = ChangeAsked(now_s, "r", {"process": "started anew"}, origin="crash")
    waiting = fold_all([waits, asked, ChangeMoved(now_s, "r", "queued", note=note)], state)
    over = fold_all([replace(CRASHED, at_s=now_s), TrainingEnded(now_s, 137)], state)
    for seen, words in ((waiting, "crashed try 1 of 3 in 5 s"), (over, "crashed killed (SIGKILL)")):
        assert words in text_of(hint_rows(View(seen, now_s), 80, 1)), words
        view = View(seen, now_s, restart=Draft().answered(GOES_ON))
        text = " ".join(text_of(frame(view, 80, 24)).split())
        assert "crashed killed (SIGKILL), at step 400" in text and "34 steps or a few more are lost" in text, text
        assert why_not("restart", seen) is None
    assert "try 1 of 3 in 5 s" in " ".join(text_of(frame(View(waiting, now_s, restart=Draft()), 80, 24)).split())
    none = replace(CRASHED, at_s=now_s, offered=False, reason="nothing to go on from")
    nothing = fold_all([none, TrainingEnded(now_s, 1)], state)
    assert "nothing to go on from" in text_of(hint_rows(View(nothing, now_s), 80, 1))


def test_a_crash_is_news_and_a_waiting_try_can_be_dropped_or_had_at_once() -> None:
    async def it() -> None:
        async with seated(scenes.early) as seat:
            at_s = seat.link.state.at_s
            seat.link.answers["restart"] = GOES_ON
            asked = ChangeAsked(at_s, "r", {"process": "started anew"}, origin="crash")
            seat.link.happen(replace(CRASHED, at_s=at_s, number=1, of=3, next_s=at_s + 60.0), asked)
            await seat.until(lambda: "killed (SIGKILL), at step 400" in seat.text, "the news")
            assert "in 60 s" not in seat.text.split("▸ ")[-1], "a notice stands still"
            await seat.press("u")
            await seat.until(lambda: bool(seat.link.commands))
            assert seat.link.commands == [("drop", {})]
            await seat.press("r")
            await seat.until(lambda: "goes on from the hand-off" in seat.text)
            await seat.press("r")
            seat.link.answers["restart"] = {"begun": True, "note": "goes on from the hand-off"}
            await seat.press("enter")
            await seat.until(lambda: "a new process goes on from the hand-off" in seat.text)
            assert seat.link.commands[-1][1].get("environ") or seat.link.commands[-2][1].get("environ")

    run(it)


def test_one_that_waits_for_a_checkpoint_is_not_said_to_hand_over() -> None:
    state, now_s = asked({"env MINE": "7"})
    note = "the training goes on until it has written its next checkpoint (out/*.pt)"
    waits = fold_all([SessionSeen(now_s), ChangeMoved(now_s, "r", "queued", note=note)], state)
    text = " ".join(text_of(frame(View(waits, now_s, restart=Draft()), 80, 24)).split())
    assert note in text and "hands over" not in text
    below = text_of(hint_rows(View(waits, now_s), 80, 1))
    assert "after its next checkpoint" in below and "epoch" not in below


def test_the_value_of_a_long_name_is_never_cut() -> None:
    state, now_s = asked({"env OMP_NUM_THREADS": "4"})
    state = fold_all(moved(now_s, until="settling"), state)
    for width in (36, 40, 60):
        (line,) = [row for row in trials_rows(View(state, now_s), width, 4) if "2→4" in text_of([row])]
        assert width_of(line) == width


def test_keys_choose_type_and_ask_and_enter_alone_restarts() -> None:
    async def it() -> None:
        async with seated(scenes.early) as seat:
            seat.link.answers["restart"] = FINE
            await seat.press("r")
            await seat.until(lambda: "no step is lost" in seat.text, "what it costs")
            assert [args.get("only_look") for _, args in seat.link.commands] == [True]
            await seat.press("right")
            await seat.until(lambda: "OMP_NUM_THREADS          2                        →1" in seat.text)
            await seat.press("right")
            await seat.until(lambda: "→4" in seat.text, "what runs is no choice")
            await seat.press("left", "left")
            await seat.until(lambda: "→" not in seat.rows[4], "back to what runs")
            await seat.press("up", "end", *["down"] * 12, "enter")
            await seat.press(*"MINE", "equals_sign", *"a b", "enter")
            await seat.until(lambda: "→a b" in seat.text, "what was typed")
            await seat.press("enter", *["backspace"] * 4, "enter")
            await seat.until(lambda: "→(not set)" in seat.text, "a name alone takes it away")
            await seat.press("enter", *["backspace"] * 9, *"COCKPIT_RUN", "enter")
            await seat.until(lambda: "cockpit's own" in seat.text)
            await seat.press("r")
            assert "MINE" in seat.box and "restart" in seat.box
            await seat.press("escape", "r")
            assert not [args for _, args in seat.link.commands if "only_look" not in args], "nothing on two keys"
            await seat.press("enter")
            await seat.until(lambda: "a new process gets ready" in seat.text)
            (asked,) = [args for _, args in seat.link.commands if "only_look" not in args]
            assert asked == {"env": {"MINE": None}, "environ": dict(os.environ)}
            at_s = seat.link.state.at_s
            seat.link.happen(ChangeAsked(at_s, "r", {"env MINE": UNSET}))
            await seat.until(lambda: "PREPARING" in seat.text)
            await seat.press("r")
            await seat.until(lambda: "is under way" in seat.text)
            await seat.press("u")
            await seat.until(lambda: "called off" in seat.text)
            assert seat.link.commands[-1][0] == "drop"
            await seat.press("escape", "escape")
            await seat.until(lambda: "SETTINGS" in seat.text)

    run(it)


def test_a_refusal_is_said_and_what_was_chosen_stays() -> None:
    async def it() -> None:
        async with seated(scenes.early) as seat:
            seat.link.answers["restart"] = FINE
            await seat.press("r")
            await seat.until(lambda: "no step is lost" in seat.text)
            await seat.press("right", "r")
            seat.link.refuse["restart"] = "several ranks cannot be restarted yet"
            await seat.press("enter")
            await seat.until(lambda: "several ranks" in seat.text)
            await seat.until(lambda: "→1" in seat.rows[4], "it can be changed")
            await seat.press("u")
            await seat.until(lambda: "→1" not in seat.rows[4], "or forgotten")

    run(it)


def test_a_restart_that_waits_is_no_setting_in_the_queue() -> None:
    async def it() -> None:
        async with seated(lambda: asked({"env MINE": "7"})) as seat:
            await seat.press("right")
            await seat.until(lambda: len(seat.link.commands) == 1)
            assert seat.link.commands[0][1]["knobs"] == {"num_workers": 1}
            await seat.press("a")
            await seat.until(lambda: len(seat.link.commands) == 2)
            assert set(seat.link.commands[1][1]["knobs"]) == {"num_workers"}

    run(it)


def test_looking_only_changes_nothing() -> None:
    async def it() -> None:
        async with seated(scenes.early, readonly=True) as seat:
            seat.link.answers["restart"] = FINE
            await seat.press("r")
            await seat.until(lambda: "no step is lost" in seat.text)
            await seat.press("right", "enter", "r")
            await seat.until(lambda: "read only" in seat.text)
            assert all(args.get("only_look") for _, args in seat.link.commands) and len(seat.app.screen_stack) == 1

    run(it)


@pytest.mark.parametrize(("gap_s", "whole"), [(1.5, True), (8.0, False)])
def test_the_chart_goes_on_over_both_processes_and_shows_a_long_gap_as_one_and_never_as_zero(
    gap_s: float, whole: bool
) -> None:
    run = scenes.Script()
    state = fold_all(run.events(60.0))
    at_s = state.at_s
    cpu = {"cpu_main": 0.1, "cpu_workers": 0.0, "cpu_others": 0.0}
    quiet = [Sampled(at_s + 0.5 * half, 0.5, **cpu) for half in range(1, round(2 * gap_s))]
    begun = [ChangeAsked(at_s, "r", {"env OMP_NUM_THREADS": "4"}), *moved(at_s, until="first step")]
    state = fold_all([*begun, *quiet], state)
    between = text_of(frame(View(state, state.at_s), 120, 40))
    assert "SWITCHING" in between and "epoch 1 " in between, "what was measured stands there"
    at_s += gap_s
    change = moved(at_s, until="settling")[-1]
    run.change = "r"
    after = [event for half in range(60) for event in run.second(at_s + 0.5 * half)]
    state = fold_all([ProbeConnected(at_s, 4712, "2.14.1", "3.11.9"), change, *after], state)
    rows = text_of(frame(View(state, state.at_s), 120, 40)).split("\n")
    (bottom,) = [row for row in rows if row.strip().startswith("0│")]
    line = bottom.partition("│")[2].strip()
    gaps = line.replace("┊", " ").count(" ")
    assert (gaps == 0) is whole, bottom
    assert all(char in "⢸⣿⡇ ┊" for char in line), "full from the ground on, or nothing"
    assert "◆2→4" in "\n".join(rows)


def test_what_hand_offs_took_stands_there_and_is_news_once_where_somebody_pays_dearly() -> None:
    state, now_s = scenes.early(60.0)
    shown = {}
    for every, sparing in ((1, False), (1, True)):
        seen = fold_all([SessionSeen(now_s, ("model",), 90, every, sparing=sparing)], state)
        seen = fold_all([HandoffSeen(now_s, at, 40 * at, 10**9, 3.0) for at in (1, 2, 3)], seen)
        shown[sparing] = text_of(frame(View(seen, now_s, restart=Draft().answered(FINE)), 120, 40))
    assert "so far" in shown[True] and "hand-offs: 3 written: 9.0 s" in shown[True]
    assert "so far" in shown[False] and "--handoff-every 1 asks for them" in shown[False]
    assert "so far" not in text_of(frame(View(state, now_s, restart=Draft().answered(FINE)), 120, 40))

    async def it() -> None:
        async with seated(scenes.early) as seat:
            at_s = seat.link.state.at_s
            seat.link.happen(SessionSeen(at_s, ("model",), 90, 1))
            seat.link.happen(*[HandoffSeen(at_s, at, 40 * at, 10**9, 9.0) for at in (1, 2, 3)])
            await seat.until(lambda: "--handoff-every 1 asks for them" in seat.text, "the news")

    run(it)

"""The app with a fake link: keys become commands, errors become sentences, and the picture never waits for either."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tui import scenes
from tui.fake_link import FakeLink

from cockpit.history.actions import ACTIONS, IN_LEAVE
from cockpit.history.state import State
from cockpit.model.events import ChangeMoved, LoadersSeen, OutputSeen, TrainingEnded
from cockpit.model.stacks import StackPart, StacksSeen
from cockpit.tui.cockpit import Cockpit
from cockpit.tui.rows import text_of
from cockpit.tui.terminal import Terminal


class Seat:
    """One screen under test: its pilot, its link, and what it shows."""

    def __init__(self, app: Cockpit, pilot: Pilot[str], link: FakeLink) -> None:
        self.app, self.pilot, self.link = app, pilot, link

    @property
    def rows(self) -> list[str]:
        return text_of(self.app._canvas._rows).split("\n")

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def knob(self, label: str) -> str:
        """The row of a setting, wherever it stands; empty where it is scrolled out of sight."""
        return next((row for row in self.rows if row[3:].startswith(label)), "")

    @property
    def box(self) -> str:
        """The dialog on top."""
        assert len(self.app.screen_stack) > 1, "no box is open"
        return text_of(self.app.screen.query_one("Canvas")._rows)  # type: ignore[attr-defined]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        for _ in range(200):
            if true():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"{what or 'it'} never came; the screen:\n{self.text}")


@asynccontextmanager
async def seated(
    scene: Callable[[], tuple[State, float]] = scenes.steady,
    size: tuple[int, int] = (80, 24),
    terminal: Terminal | None = None,
    data: Path = Path("/nonexistent"),
    **more: bool,
) -> AsyncIterator[Seat]:
    state, now_s = scene()
    link = FakeLink(state)
    app = Cockpit(link.connect, data, terminal or Terminal(), clock=lambda: now_s, **more)
    app.look = "dark"  # whatever the terminal is that the tests run in
    async with app.run_test(size=size) as pilot:
        seat = Seat(app, pilot, link)
        await seat.until(lambda: "STARTING" not in seat.rows[0], "the first state")
        yield seat


def run(test: Callable[[], object]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


def test_arrows_queue_at_once_and_presses_are_gathered() -> None:
    async def it() -> None:
        async with seated(scenes.early) as seat:
            seat.link.slow_s = 0.2
            await seat.press("right")
            assert seat.knob("num_workers").startswith("▸1 num_workers       0 →1    asked"), (
                "the key repaints before the answer"
            )
            await seat.press("right", "right", "l")
            await seat.until(lambda: len(seat.link.commands) == 2, "the second command")
            asked = [args["knobs"] for verb, args in seat.link.commands if verb == "set"]
            assert asked == [{"num_workers": 1}, {"num_workers": 3}]
            await seat.until(lambda: "→3    queued" in seat.knob("num_workers"), "the queued value")

    run(it)


def test_a_choice_that_goes_along_with_apply_is_over_when_it_is_in_force() -> None:
    """The last press and ``a`` before anything was sent: the next ``u`` takes the change back, and drops nothing."""

    async def it() -> None:
        async with seated(scenes.early) as seat:
            for name in ("more", "more", "apply"):  # all in one turn of the loop, as from a terminal
                seat.app.action_key(name)
            await seat.until(lambda: bool(seat.link.commands))
            assert seat.link.commands[-1] == ("set", {"knobs": {"num_workers": 2}, "now": True, "loader": None})
            (entry,) = seat.link.state.ledger
            at_s, found = seat.link.state.at_s, {"num_workers": 2}
            loaders = scenes.Script(workers=2).loaders(at_s)
            seat.link.happen(
                ChangeMoved(at_s, entry.id, "settling", 9, before={"num_workers": 0}, in_force=found), loaders
            )
            await seat.until(lambda: not seat.app.doing.wanted, "what was chosen is in force")
            await seat.press("u")
            await seat.until(lambda: len(seat.link.commands) == 2)
            assert seat.link.commands[-1][0] == "undo"

    run(it)


def test_going_back_to_what_runs_withdraws_the_wish() -> None:
    async def it() -> None:
        async with seated(scenes.early) as seat:
            await seat.press("right")
            await seat.until(lambda: "queued" in seat.knob("num_workers"))
            await seat.press("left")
            await seat.until(lambda: "‹ ›" in seat.knob("num_workers"))
            assert [verb for verb, _ in seat.link.commands] == ["set", "drop"]
            assert not [entry for entry in seat.link.state.ledger if entry.state == "queued"]

    run(it)


def test_withdrawing_one_keeps_the_others_queued() -> None:
    async def it() -> None:
        async with seated() as seat:
            await seat.press("right")
            await seat.until(lambda: "→5    queued" in seat.knob("num_workers"))
            await seat.press("left")
            await seat.until(lambda: "‹ ›" in seat.knob("num_workers"))
            assert seat.link.commands[-1] == (
                "set", {"knobs": {"persistent_workers": True}, "now": False, "loader": None},
            )  # fmt: skip
            await seat.until(lambda: "→on   queued" in seat.knob("persistent"))

    run(it)


def test_choosing_jumping_flipping() -> None:
    async def it() -> None:
        async with seated() as seat:
            await seat.press("j", "down", "up", "k", "4")
            assert seat.knob("in_order").startswith("▸4 in_order")
            await seat.press("space")
            await seat.until(lambda: bool(seat.link.commands))
            assert seat.link.commands[0][1]["knobs"] == {"in_order": False}
            await seat.press("0")
            assert seat.knob("pin_memory").startswith("▸0 pin_memory"), "the tenth"
            await seat.press("down", "down")
            assert seat.knob("pin_memory").startswith("▸0 pin_memory"), "past the last one is the last one"

    run(it)


def test_a_key_that_can_do_nothing_says_why() -> None:
    async def it() -> None:
        async with seated(scenes.early) as seat:
            await seat.press("9", "right")
            assert "pin_memory: no accelerator is seen" in seat.text
            await seat.press("a")
            assert "nothing is queued" in seat.text
            await seat.press("u")
            assert "nothing to undo" in seat.text
            await seat.press("s")
            assert "nothing to save" in seat.text
            await seat.press("1", "space")
            assert "space flips switches" in seat.text
            await seat.press("left")
            assert "that is as far as it goes" in seat.text
            assert seat.link.commands == []
            await seat.press("escape")
            assert "as far as" not in seat.text

    run(it)


def test_apply_takes_the_whole_queue_unless_one_can_only_land_at_the_boundary() -> None:
    async def it() -> None:
        async with seated() as seat:
            await seat.press("a")
            assert "persistent_workers changes only at the next epoch" in seat.text
            await seat.press("u", "right", "4", "space")
            await seat.until(lambda: "queued" in seat.knob("num_workers") and "queued" in seat.knob("in_order"))
            await seat.press("a")
            await seat.until(lambda: seat.link.commands[-1][1].get("now") is True)
            assert seat.link.commands[-1][1]["knobs"] == {"num_workers": 5, "in_order": False}

    run(it)


def test_what_a_batch_size_does_besides_is_said_before_it_is_applied() -> None:
    async def it() -> None:
        async with seated() as seat:
            loader = seat.link.state.loaders[0]
            note = "782 steps an epoch become 391; the last batch has 8 samples [/x]"
            knobs = tuple(
                replace(report, asked=32, note=note) if report.name == "batch_size" else report
                for report in loader.knobs
            )
            seat.link.happen(LoadersSeen(seat.link.state.at_s, (replace(loader, knobs=knobs),)))
            await seat.until(lambda: "batch_size: 782 steps an epoch become 391" in seat.text)
            await seat.press("escape")
            await seat.pilot.pause(0.7)
            assert "become 391" not in seat.text, "it is said once"

    run(it)


def test_undo_drops_the_queue_first_and_then_takes_back() -> None:
    async def it() -> None:
        async with seated() as seat:
            await seat.press("u")
            await seat.until(lambda: "the queue is dropped" in seat.text)
            await seat.until(lambda: not [e for e in seat.link.state.ledger if e.state == "queued"])
            await seat.press("u", "U", "b")
            await seat.until(lambda: len(seat.link.commands) == 4)
            assert [verb for verb, _ in seat.link.commands] == ["drop", "undo", "redo", "baseline"]

    run(it)


def test_an_engine_that_refuses_is_quoted_and_the_wish_is_gone() -> None:
    async def it() -> None:
        async with seated() as seat:
            seat.link.refuse["set"] = "num_workers cannot be 5: [/b] says \x1b[31mno"
            await seat.press("right")
            await seat.until(lambda: "num_workers cannot be 5: [/b] says no" in seat.text)
            assert "‹ ›" in seat.knob("num_workers")

    run(it)


def test_leaving_asks_how_and_ctrl_c_twice_detaches() -> None:
    async def it() -> None:
        for keys, left in ((("q", "d"), "detached"), (("ctrl+c", "ctrl+c"), "detached")):
            async with seated() as seat:
                await seat.press(keys[0])
                assert "cockpit attach train-3f" in seat.box and "s stop softly" in seat.box
                await seat.press(keys[1])
                await seat.until(lambda s=seat: s.app.return_value is not None)  # type: ignore[misc]
                assert seat.app.return_value == left
        async with seated() as seat:
            await seat.press("q", "escape")
            assert len(seat.app.screen_stack) == 1 and seat.app.return_value is None
            await seat.press("escape", "q", "s")
            await seat.until(lambda: bool(seat.link.commands))
            assert seat.link.commands == [("stop", {"force": False})]
            assert seat.app.return_value is None, "the screen stays to show the stopping"

    run(it)


def test_after_the_end_the_screen_stays_until_q() -> None:
    async def it() -> None:
        async with seated() as seat:
            seat.link.happen(TrainingEnded(seat.link.state.at_s, 3))
            seat.link.lose()  # an engine may leave once the training is over
            await seat.until(lambda: "■ ENDED exit 3" in seat.rows[0])
            await seat.press("right")
            assert "the training has ended" in seat.text and "LOST" not in seat.text
            await seat.press("q")
            await seat.until(lambda: seat.app.return_value == "ended")

    run(it)


def test_a_lost_engine_is_shown_and_found_again() -> None:
    async def it() -> None:
        async with seated() as seat:
            seat.link.lose()
            await seat.until(lambda: "⌁ LOST engine" in seat.rows[0])
            await seat.press("right")
            await seat.until(lambda: "the engine does not answer at the moment" in seat.text)
            seat.link.lost = False
            await seat.until(lambda: "STEADY" in seat.rows[0], "the engine")
            assert seat.link.connects >= 2

    run(it)


def test_a_lost_engine_is_started_again_and_leaving_does_not_wait_for_it() -> None:
    async def it() -> None:
        state, now_s = scenes.steady()
        link, tried = FakeLink(state), threading.Event()

        def revive() -> None:
            tried.set()
            time.sleep(8)

        app = Cockpit(link.connect, Path("/nonexistent"), Terminal(), clock=lambda: now_s, revive=revive)
        async with app.run_test(size=(80, 24)) as pilot:
            seat = Seat(app, pilot, link)
            await seat.until(lambda: app.feed.state is not None)
            link.lose()
            await seat.until(tried.is_set, "an attempt to start the engine")
            await pilot.press("q", "d")

    began = time.monotonic()
    run(it)
    assert time.monotonic() - began < 7, "it waited for the engine"


def test_a_mistake_beside_the_picture_closes_the_screen_and_is_told() -> None:
    async def it() -> None:
        async with seated() as seat:

            async def broken() -> State:
                raise ZeroDivisionError("a mistake of ours")

            seat.link.next_state = broken  # type: ignore[method-assign]
            seat.link.show(seat.link.state)
            await seat.until(lambda: seat.app.return_code == 1)

    run(it)


def test_readonly_asks_nothing() -> None:
    async def it() -> None:
        async with seated(readonly=True) as seat:
            await seat.press("right", "space", "a", "u", "U", "b")
            assert "this screen is read only" in seat.text
            assert seat.link.commands == []

    run(it)


def test_saving_shows_path_and_difference_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def it() -> None:
        async with seated(size=(130, 24)) as seat:
            await seat.press("s")
            assert str(tmp_path / "cockpit.toml") in seat.box and "num_workers   0 → 4" in seat.box
            await seat.press("escape")
            assert not (tmp_path / "cockpit.toml").exists(), "esc saves nothing"
            await seat.press("s", "enter")
            await seat.until(lambda: "cockpit run --config cockpit.toml train.py" in seat.box)
            assert "num_workers = 4" in (tmp_path / "cockpit.toml").read_text()
            await seat.until(lambda: bool(seat.link.commands))
            assert seat.link.commands == [("saved", {"path": str(tmp_path / "cockpit.toml")})]
            (tmp_path / "cockpit.toml").write_text("mine = 1\n")
            await seat.press("escape", "s", "enter")
            await seat.until(lambda: "was not written by cockpit" in seat.text)

    run(it)


def test_every_action_of_the_table_has_a_handler_and_a_line_in_help() -> None:
    async def it() -> None:
        async with seated(size=(100, 40)) as seat:
            for action in ACTIONS:
                assert action.name in IN_LEAVE or hasattr(seat.app.keys, action.name), action.name
            await seat.press("question_mark")
            for action in ACTIONS:
                assert action.help in seat.box and action.shown in seat.box
            await seat.press("question_mark")
            assert len(seat.app.screen_stack) == 1

    run(it)


def test_looks_change_and_nothing_breaks() -> None:
    async def it() -> None:
        async with seated() as seat:
            before = seat.text
            await seat.press("G")
            assert "⣿" not in seat.text and "█" in seat.text
            await seat.press("G")
            assert seat.text.isascii()
            await seat.press("G", "t", "z", "z", "z")
            assert seat.text == before

    run(it)


def test_any_size_down_to_one_cell_and_back() -> None:
    async def it() -> None:
        async with seated() as seat:
            for size in ((1, 1), (200, 60), (59, 10), (3, 30), (80, 2), (80, 24)):
                await seat.pilot.resize_terminal(*size)
                await seat.until(lambda s=size: len(seat.app._canvas._rows) == s[1])  # type: ignore[misc]
                await seat.press("question_mark", "escape", "q", "escape", "j")
            await seat.until(lambda: seat.rows[0].endswith("● STEADY"))

    run(it)


def test_output_comes_from_the_file_and_is_data(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"x" * 5_000_000 + b"\nloss 1.5 [/loss]\n\x1b[2J 10%\r 20%\xff")

    async def it() -> None:
        async with seated(size=(120, 40), data=tmp_path) as seat:
            await seat.until(lambda: "› loss 1.5 [/loss]" in seat.text)
            assert "›  20%\ufffd" in seat.text and "10%" not in seat.text
            log.write_bytes(b"fresh\n")
            await seat.until(lambda: "› fresh" in seat.text, "what came after a truncation")

    run(it)


def test_what_landed_is_seen_without_a_key() -> None:
    async def it() -> None:
        async with seated() as seat:
            run_ = scenes.Script(workers=4, prefetch=2)
            at_s = seat.link.state.at_s
            queued = next(entry for entry in seat.link.state.ledger if entry.state == "queued")
            seat.link.happen(ChangeMoved(at_s, queued.id, "applying"))
            await seat.until(lambda: "⟳ SWITCHING" in seat.rows[0])
            assert "num_workers 2→4" in seat.rows[2], "the last delta stays while switching"
            assert "forward" in seat.rows[14] and "16.0 ms" in seat.rows[13]
            for event in run_.land(at_s, {"persistent_workers": True}, queued.id):
                assert isinstance(event, ChangeMoved | LoadersSeen)
                seat.link.happen(event)
            seat.link.happen(OutputSeen(at_s, "epoch 3", 10))
            await seat.until(lambda: "persistent on  settling 0/" in seat.rows[2])

    run(it)


def test_a_dump_is_shown_when_all_have_answered_and_is_data() -> None:
    async def it() -> None:
        async with seated() as seat:
            seat.link.answers["dump"] = {"id": "d1", "pids": [4711], "kernel": {}}
            await seat.press("D")
            await seat.until(lambda: ("dump", {}) in seat.link.commands)
            part = StackPart("thread MainThread (4711), which trains", ('File "[/b].py", line 41 in \x1b[31mmain',))
            seat.link.happen(StacksSeen(seat.link.state.at_s, "d1", 4711, (part,)))
            await seat.until(lambda: len(seat.app.screen_stack) > 1 and bool(seat.app.screen.query("Canvas")))
            await seat.until(lambda: seat.box != "")
            assert 'File "[/b].py", line 41 in main' in seat.box and "which trains" in seat.box
            await seat.press("D")
            assert len(seat.app.screen_stack) == 1

    run(it)


def test_an_answer_never_opens_over_what_somebody_looks_at() -> None:
    async def it() -> None:
        async with seated() as seat:
            seat.link.answers["dump"] = {"id": "d1", "pids": [4711], "kernel": {}}
            await seat.press("D", "D", "question_mark")
            await seat.until(lambda: ("dump", {}) in seat.link.commands)
            part = StackPart("thread MainThread (4711), which trains", ('File "b.py", line 41 in main',))
            seat.link.happen(StacksSeen(seat.link.state.at_s, "d1", 4711, (part,)))
            await asyncio.sleep(0.5)
            assert len(seat.app.screen_stack) == 2 and "keys" in seat.box
            await seat.press("escape")  # for a moment nothing is open
            await seat.until(lambda: len(seat.app.screen_stack) == 2 and "which trains" in seat.box)
            assert seat.link.commands.count(("dump", {})) == 1

    run(it)


def test_v_shows_all_trials_then_all_output_then_the_picture() -> None:
    async def it() -> None:
        async with seated() as seat:
            await seat.press("v")
            assert seat.rows[3].startswith("TRIALS") and seat.rows[4].startswith("  3 persistent on")
            await seat.press("down", "right", "space", "1", "enter", "pageup")
            assert seat.link.commands == [] and len(seat.app.screen_stack) == 1
            await seat.press("v")
            assert seat.rows[3].startswith(" OUTPUT")
            await seat.press("v")
            assert seat.rows[3].startswith("MODEL")
            await seat.press("v", "escape")
            assert seat.rows[3].startswith("MODEL")

    run(it)

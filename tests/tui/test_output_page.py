"""The training's output on the screen: read from its file at a bounded cost, scrolled, searched, followed. All data."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Input
from tui import scenes
from tui.test_app import run, seated

from cockpit.tui.frame import frame
from cockpit.tui.log import FIRST_BYTES, LONGEST, READ_BYTES, Tail
from cockpit.tui.output import output_rows
from cockpit.tui.reading import Finder, Reading, followed, holds, jumped, places, scrolled, shifted
from cockpit.tui.rows import text_of, width_of
from cockpit.tui.view import View

LINES = tuple(f"step {at} loss {10 / (at + 1):.3f}" for at in range(100))


def page(reading: Reading, lines: tuple[str, ...] = LINES, first: int = 0, width: int = 60, height: int = 11) -> str:
    view = View(None, 0.0, lines=lines, first_line=first, older=first > 0, reading=reading)
    rows = output_rows(view, height, width)
    assert len(rows) == height and all(width_of(row) <= width for row in rows)
    return text_of(rows)


# ---- what is read ----
def test_a_huge_file_costs_a_glance_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    with log.open("wb") as file:  # a hundred megabytes that take no room
        file.seek(100 * 2**20)
        file.write(b"".join(b"line %d\n" % at for at in range(500)))
    tail = Tail(log)
    tail.read()
    assert tail.lines[-1] == "line 499" and tail.older
    number = tail.first + len(tail.lines) - 1
    with log.open("ab") as file:
        file.write(b"one more\n20%\r 40%")
    tail.read()
    assert tail.lines[number - tail.first] == "line 499" and tail.lines[number - tail.first + 1] == "one more"
    assert tail.lines[-1].strip() == "40%" and tail.whole == len(tail.lines) - 1


def test_no_read_takes_more_than_its_share(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"begin\n")
    tail = Tail(log)
    tail.read()
    with log.open("ab") as file:
        file.write(b"".join(b"fast %d\n" % at for at in range(200_000)) + b"x" * 3 * READ_BYTES)
    tail.read()
    assert len(tail.lines) <= LONGEST + 1 and sum(map(len, tail.lines)) < 2 * FIRST_BYTES
    assert any("MB came too fast to be shown here" in line for line in tail.lines), "what is not shown is said"
    for _ in range(3):
        with log.open("ab") as file:
            file.write(b"y" * 10 * READ_BYTES)
        tail.read()
    assert sum("MB came too fast" in line for line in tail.lines) == 1, "one gap, and not one a glance"
    for at in range(3 * LONGEST):
        with log.open("ab") as file:
            file.write(b"\nslow %d" % at)
        if at % 50 == 0:
            tail.read()
    tail.read()
    assert len(tail.lines) <= LONGEST + 1 and tail.lines[-1] == f"slow {3 * LONGEST - 1}"
    assert tail.first > 0


def test_a_file_that_starts_anew_or_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    tail = Tail(log)
    tail.read()
    assert tail.lines == () and not tail.older
    log.write_bytes(b"first\nsecond\n")
    tail.read()
    log.write_bytes(b"new\n")
    tail.read()
    assert tail.lines == ("first", "second", "new")
    log.unlink()
    tail.read()
    assert tail.lines == ("first", "second", "new")


# ---- how it is read ----
@given(
    st.integers(0, 300), st.integers(0, 50), st.integers(1, 40),
    st.lists(st.sampled_from([-1, 1, -7, 7, "follow", "next", "previous"]), max_size=12), st.sets(st.integers(0, 300)),
)  # fmt: skip
def test_wherever_one_goes_there_are_lines(
    count: int, first: int, height: int, moves: list[int | str], hits: set[int]
) -> None:
    reading = Reading(pattern="x", hits=tuple(sorted(hit for hit in hits if first <= hit < first + count)))
    last = first + max(0, count - height)
    for move in moves:
        if isinstance(move, int):
            reading = scrolled(reading, move, first, count, height)
        elif move == "follow":
            reading = followed(reading, first, count, height)
        else:
            reading = jumped(reading, 1 if move == "next" else -1, first, count, height)
            if reading.hits:
                top = last if reading.top is None else reading.top
                assert reading.hit in reading.hits and top <= (reading.hit or 0) < top + height, "it is in sight"
        assert reading.top is None or first <= reading.top <= last


def test_what_is_looked_for_is_found_once_and_again_as_lines_come_and_go() -> None:
    finder, lines = Finder(), ["loss 1", "Loss 2", "nothing", "loss 3"]
    assert finder.hits("loss", lines, 10, 4) == (10, 11, 13)
    assert finder.hits("Loss", lines, 10, 4) == (11,)
    assert finder.hits("loss", [*lines[1:], "lo"], 11, 3) == (11, 13)
    assert finder.hits("loss", [*lines[1:], "loss 4"], 11, 3) == (11, 13, 14), "a line that grew"
    assert finder.hits("loss", [*lines[1:], "other", "loss 5"], 11, 5) == (11, 13, 15), "and became another"
    assert finder.hits("", lines, 10, 4) == ()


@given(st.text(max_size=30), st.text(max_size=3))
def test_places_and_holds_agree(line: str, pattern: str) -> None:
    found = places(line, pattern)
    assert bool(found) == (holds(line, pattern) and pattern != "")
    assert all(later - sooner >= len(pattern) for sooner, later in itertools.pairwise(found))


def test_the_page_says_which_lines_these_are_and_what_was_found() -> None:
    text = page(Reading(open=True))
    assert text.startswith(" OUTPUT  lines 91-100 of 100  following") and text.endswith("step 99 loss 0.100")
    text = page(Reading(open=True, top=40), first=20)
    assert text.splitlines()[0] == " OUTPUT  lines 21-30 of the newest 100  70 more below"
    assert text.splitlines()[1] == "  step 20 loss 0.476"
    hits = tuple(at for at, line in enumerate(LINES) if "9 " in line)
    found = page(Reading(open=True, top=85, pattern="9 ", hits=hits, hit=89), width=90)
    assert "find 9   9 of 10 lines" in found.splitlines()[0], found
    assert "▸ step 89 loss" in found
    assert "in none of these lines" in page(Reading(open=True, pattern="zebra"), width=90)
    assert "nothing printed yet" in page(Reading(open=True), ())


def test_every_place_in_a_line_stands_out_and_the_line_stays_the_same() -> None:
    reading = Reading(open=True, pattern="a", hits=(0,), hit=0)
    (row,) = output_rows(View(None, 0.0, lines=("banana",), reading=reading), 2, 40)[1:]
    assert [text for text, style in row if "on-worse" in style] == ["a", "a", "a"]
    assert text_of([row]) == "▸ banana"


def test_long_lines_are_cut_with_a_mark_and_can_be_moved() -> None:
    line = "".join(f"{at:>10}" for at in range(400))
    assert page(Reading(open=True), (line,), height=2).endswith("…")
    moved = shifted(Reading(open=True), 3, len(line))
    assert "from column 61" in page(moved, (line,), height=2)
    assert page(moved, (line,), height=2).splitlines()[1].split()[0] == "6"
    assert shifted(moved, -9, len(line)).shift == 0


def test_hostile_lines_in_the_whole_picture_stay_lines() -> None:
    state, now_s = scenes.steady()
    bad = ("\x1b[2J\x1b[H[/b]", "wide 日本語" * 40, "\ud800", "a\u202eb", "x" * 100_000)
    for reading in (Reading(open=True), Reading(open=True, shift=20, pattern="\x1b[2J", hits=(0,), hit=0)):
        rows = frame(View(state, now_s, lines=bad, reading=reading), 80, 24)
        assert len(rows) == 24 and all(width_of(row) == 80 for row in rows)
        text = text_of(rows)
        assert "\x1b" not in text and "\u202e" not in text
        text.encode()


# ---- the keys ----
def test_find_next_previous_follow_and_back(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("".join(f"{line}\n" for line in LINES))

    async def it() -> None:
        async with seated(data=tmp_path) as seat:
            await seat.until(lambda: "step 99" in seat.text)
            await seat.press("slash", *"step", "space", "4")
            await seat.until(lambda: "11 of 11 lines" in seat.rows[3], "found while it is typed")
            assert "▸ step 49 loss" in seat.text and "more below" in seat.rows[3]
            assert seat.link.commands == [], "letters are typed and do nothing else"
            await seat.press("enter", "N")
            assert "▸ step 48 loss" in seat.text and "10 of 11" in seat.rows[3]
            await seat.press("n", "n")
            assert "▸ step 4 loss" in seat.text, "round the end"
            await seat.press("f")
            assert "following" in seat.rows[3] and "step 99" in seat.rows[22]
            await seat.press("pageup", "up")
            assert "20 more below" in seat.rows[3] or "more below" in seat.rows[3]
            before = seat.rows[4:23]
            with log.open("a") as file:
                file.write("step 100 loss 0.099\n")
            await seat.until(lambda: "of 101" in seat.rows[3], "the new line")
            assert seat.rows[4:23] == before, "a page that was chosen stays"
            await seat.press("escape")
            assert "find" not in seat.rows[3] and "OUTPUT" in seat.rows[3]
            await seat.press("escape")
            assert "OUTPUT" not in seat.rows[3] and seat.rows[3].startswith("MODEL")

    run(it)


def test_esc_while_typing_goes_back_and_keys_work_again(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("alpha\nbeta\n")

    async def it() -> None:
        async with seated(data=tmp_path) as seat:
            await seat.press("slash", "b", "q", "1", "a")
            assert len(seat.app.screen_stack) == 2, "q is a letter here"
            await seat.press("escape")
            assert len(seat.app.screen_stack) == 1 and seat.rows[3].startswith("MODEL")
            await seat.press("n")
            assert "nothing is looked for" in seat.text
            await seat.press("right")
            await seat.until(lambda: bool(seat.link.commands), "a setting changes again")

    run(it)


def test_enter_twice_at_once_closes_the_line_once(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("alpha\nbeta\n")

    async def it() -> None:
        async with seated(data=tmp_path) as seat:
            await seat.press("slash", "a")
            line = seat.app.screen.query_one(Input)
            await asyncio.gather(line.action_submit(), line.action_submit())
            await seat.until(lambda: len(seat.app.screen_stack) == 1, "the line closed")
            await seat.pilot.pause(0.2)
            assert seat.app.return_code in (None, 0) and "find a" in seat.rows[3]

    run(it)


def test_in_the_output_no_key_changes_a_setting_by_accident(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("".join(f"{line}\n" for line in LINES))

    async def it() -> None:
        async with seated(data=tmp_path) as seat:
            await seat.until(lambda: "step 99" in seat.text)
            await seat.press("v", "v", "up", "right", "left", "space", "3", "enter", "minus")
            assert "OUTPUT" in seat.rows[3] and len(seat.app.screen_stack) == 1
            assert seat.link.commands == []
            assert "scroll" in seat.rows[23] and "esc back" in seat.rows[23]
            await seat.press("question_mark")
            assert seat.box.split("\n")[1].startswith("│  / n N"), "the keys of what one sees come first"
            await seat.press("escape")
            await seat.press("v")
            assert seat.rows[3].startswith("MODEL")

    run(it)


def test_a_flood_while_looking_costs_no_key(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"")

    async def it() -> None:
        async with seated(data=tmp_path) as seat:
            await seat.press("slash", "x", "enter")
            for _ in range(6):
                with log.open("ab") as file:
                    file.write(os.urandom(300_000) + b"\n" + b"x" * 400_000 + b"\rlast x\n")
                await seat.pilot.pause(0.3)
            await seat.until(lambda: "last x" in seat.text)
            assert len(seat.rows) == 24

    run(it)

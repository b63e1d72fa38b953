"""``y``: the setup as lines for the script, on the clipboard and in a box."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tui import scenes
from tui.test_app import run, seated

from cockpit.config.export import Export
from cockpit.history.state import State
from cockpit.tui.glyphs import ASCII, BRAILLE
from cockpit.tui.paste import paste_rows
from cockpit.tui.rows import text_of, width_of


def test_the_key_copies_the_lines_and_shows_them_with_the_place_of_the_call() -> None:
    async def it() -> None:
        async with seated() as seat:
            await seat.press("y")
            assert "DataLoader(..., num_workers=4)  # train.py:41" in seat.box
            assert seat.app.clipboard == "DataLoader(..., num_workers=4)  # train.py:41\n"
            await seat.press("escape")
            assert len(seat.app.screen_stack) == 1 and seat.link.commands == [], "nothing is asked of the run"

    run(it)


def untouched() -> tuple[State, float]:
    state, now_s = scenes.steady()
    bare = tuple(
        replace(each, knobs=tuple(replace(knob, in_force=knob.script) for knob in each.knobs)) for each in state.loaders
    )
    return replace(state, loaders=bare), now_s


def test_with_nothing_changed_the_key_says_so() -> None:
    async def it() -> None:
        async with seated(untouched) as seat:
            await seat.press("y")
            assert len(seat.app.screen_stack) == 1 and seat.app.clipboard == ""
            await seat.until(lambda: "nothing to export" in seat.text)

    run(it)


def test_what_the_lines_do_not_say_stands_under_them() -> None:
    found = Export(("torch.set_num_threads(2)",), ("fp16 needs an enabled GradScaler",))
    text = text_of(paste_rows(found, 80, 24, 0, BRAILLE))
    assert text.index("torch.set_num_threads(2)") < text.index("fp16 needs an enabled GradScaler")


lines = st.lists(st.text(min_size=1), min_size=1, max_size=9).map(tuple)


@settings(deadline=None, max_examples=60)
@given(lines, lines, st.integers(20, 200), st.integers(6, 30), st.integers(0, 40))
def test_any_lines_fit_their_room(
    code: tuple[str, ...], notes: tuple[str, ...], width: int, height: int, top: int
) -> None:
    for glyphs in (BRAILLE, ASCII):
        rows = paste_rows(Export(code, notes), width, height, top, glyphs)
        assert (
            len(rows) <= height
            and {width_of(each) for each in rows} == {width_of(rows[0])}
            and width_of(rows[0]) <= width
        )

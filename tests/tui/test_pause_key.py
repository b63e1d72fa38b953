"""The key of a pause: what it asks for, what the screen shows meanwhile, and why a pause is over."""

from __future__ import annotations

from tui import scenes
from tui.test_app import run, seated

from cockpit.history.fold import fold_all
from cockpit.model.pause import PauseMoved
from cockpit.tui.head import speed_row, title_row
from cockpit.tui.rows import text_of
from cockpit.tui.settings import landing_words
from cockpit.tui.view import View


def test_p_pauses_and_p_goes_on() -> None:
    async def it() -> None:
        async with seated(size=(80, 24)) as seat:
            await seat.press("p")
            await seat.until(lambda: "p goes on" in seat.text, "the sentence")
            at_s = seat.link.state.at_s
            seat.link.happen(PauseMoved(at_s, "p", "asked"), PauseMoved(at_s, "p", "paused", 400))
            await seat.until(lambda: seat.rows[0].rstrip().endswith("‖ PAUSED 0:00"), "the badge")
            await seat.press("p")
            await seat.until(lambda: len(seat.link.commands) == 2)
            assert [verb for verb, _ in seat.link.commands] == ["pause", "resume"]
            seat.link.happen(PauseMoved(at_s, "p", "over", 400, "the engine was gone"))
            await seat.until(lambda: "the pause is over: the engine was gone" in seat.text, "why")
            seat.link.refuse["pause"] = "it cannot be paused: several ranks train together"
            await seat.press("p")
            await seat.until(lambda: "several ranks" in seat.text)

    run(it)


def test_what_is_shown_meanwhile() -> None:
    state, now_s = scenes.steady()
    held = fold_all([PauseMoved(now_s - 31.0, "p", "asked"), PauseMoved(now_s - 31.0, "p", "paused", 400)], state)
    assert landing_words(held) == "when it goes on"
    for width in (60, 80, 200):
        assert text_of([title_row(View(held, now_s), width)]).rstrip().endswith("‖ PAUSED 0:31")
    assert text_of([speed_row(View(held, now_s), 80)]).split()[0] == "–", "no figure of now"

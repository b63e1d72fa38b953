"""Any keys in any order: the screen stays whole, whatever is open at the time and however quickly they come."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tui.test_app import run, seated

from cockpit.history.actions import ACTIONS

KEYS = sorted({key for action in ACTIONS for key in action.keys} - {"ctrl+c", "ctrl+z"} | set("xy1") | {"backspace"})


def wander(seed: int, presses: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any keys in any order, several at once: the picture stays whole, and only ``q d`` would leave it."""
    monkeypatch.chdir(folder)
    (folder / "output.log").write_text("x 1\nsome words\n" * 30)
    pick = random.Random(seed)

    async def it() -> None:
        async with seated(data=folder) as seat:
            for _ in range(presses // 4):
                await seat.press(*(key for key in pick.choices(KEYS, k=4) if key != "d"))
                assert seat.app.return_code in (None, 0) and seat.app.return_value is None
                assert len(seat.rows) == 24 and len(seat.app.screen_stack) <= 2
            while len(seat.app.screen_stack) > 1:
                await seat.press("escape")
            await seat.until(lambda: "samples/s" in seat.rows[1])

    run(it)


def test_any_keys_in_any_order_leave_the_screen_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wander(1, 120, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_any_keys_in_any_order_long(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wander(seed, 600, tmp_path, monkeypatch)

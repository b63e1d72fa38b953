"""No second process beside a training that would be ended for it: less is done, or nothing, and the reason is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_restart_plan import STANDING, STATE

from cockpit.engine import room
from cockpit.engine.restart_plan import wanted
from cockpit.engine.restart_preview import preview
from cockpit.engine.room import PYTHON_BYTES, TORCH_BYTES, Room, room_of, why_without_torch
from cockpit.engine.rundir import RunDir
from cockpit.model.errors import CockpitError

MB = 1 << 20


@pytest.mark.parametrize(
    ("found", "begins", "with_torch"),
    [
        (Room(None), True, True),
        (Room(TORCH_BYTES), True, True),
        (Room(TORCH_BYTES - 1), True, False),
        (Room(500 * MB, 600 * MB), True, False),
        (Room(PYTHON_BYTES), True, False),
        (Room(PYTHON_BYTES - 1), False, False),
        (Room(0), False, False),
    ],
)
def test_what_memory_allows(found: Room, begins: bool, with_torch: bool) -> None:
    why = why_without_torch(found)
    assert (not why) == with_torch and all("of memory are left beside the training" in words for words in why)
    standing = replace(STANDING, room=found)
    if begins:
        assert wanted(STATE, standing, {}, "/ours").asked
        assert preview(STATE, standing, {}, "/ours")["reason"] is None
        return
    with pytest.raises(CockpitError, match="a second process might be the end of it"):
        wanted(STATE, standing, {}, "/ours")
    assert "a second process" in str(preview(STATE, standing, {}, "/ours")["reason"])


def test_what_the_last_one_took_is_what_the_next_one_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory_left", lambda pid: 7)
    run = RunDir("a", tmp_path, tmp_path)
    assert room_of(run, 1) == Room(7, TORCH_BYTES)
    took = ({"torch": True, "private_dirty_kb": 1024 * 600, "private_clean_kb": 1024 * 200}, {"torch": False}, {})
    for number, ready in enumerate(took, 2):
        (tmp_path / f"life-{number}").mkdir()
        (tmp_path / f"life-{number}" / "ready.json").write_text(json.dumps(ready))
    assert room_of(run, 1).torch == 1000 * MB

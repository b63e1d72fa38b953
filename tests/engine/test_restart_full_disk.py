"""A hot restart whose engine cannot write: it lives on, what was prepared stands, and a stop is still a stop."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from hearing import Room
from support.events import Story

from cockpit.engine import restarts
from cockpit.engine.record import Record
from cockpit.engine.restarts import Restarts
from cockpit.engine.rundir import rundir_at, write_json
from cockpit.history.fold import fold
from cockpit.history.journal import Journal
from cockpit.history.state import State
from cockpit.history.trials import entry_of
from cockpit.probe import lives


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Restarts, Record, Path]:
    """A restart that waits for its turn."""
    room = Room()
    state = fold(room.state, Story().asked("r1", {"env MINE": "7"}))
    record = Record(state, Journal(tmp_path, State()))
    folder = tmp_path / "life-2"
    (folder / restarts.BACK).mkdir(parents=True)
    write_json(folder / lives.PLAN, {"change": "r1", "asked": {"env MINE": "7"}})
    write_json(folder / lives.PIDS, {"keeper": 1, "training": 1 << 22})  # of which the first lives
    return Restarts(rundir_at(tmp_path), record, room.ears, lambda: 1020.0), record, folder


def test_settings_that_cannot_be_written_are_written_at_the_next_look(
    asked: tuple[Restarts, Record, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, _, folder = asked
    with monkeypatch.context() as patch:
        patch.setattr(restarts, "write_json", full)
        it.look()
        it.look()
    assert not (folder / "start.json").exists()
    it.look()
    assert (folder / "start.json").exists() and (folder / restarts.BACK / "start.json").exists()


@pytest.mark.parametrize("go", [None, {"handoff": "whole"}])
def test_stopped_without_room_for_a_word(
    asked: tuple[Restarts, Record, Path], monkeypatch: pytest.MonkeyPatch, go: dict[str, str] | None
) -> None:
    it, record, folder = asked
    if go is not None:
        assert lives.claim_go(str(folder), go)
    monkeypatch.setattr(lives, "link", full)
    assert it.call_off("the run was stopped") is (go is None)
    entry = entry_of(record.state, "r1")
    assert entry is not None and (entry.state, entry.reason) == (
        ("queued", None) if go else ("refused", "the run was stopped")
    )

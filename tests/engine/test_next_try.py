"""A try after a crash whose moment has come: the disk is full, the process cannot be started, somebody came further."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cockpit.engine import crashes, next_life
from cockpit.engine.beginnings import Beginnings
from cockpit.engine.crash_plan import Base, Settings
from cockpit.engine.crashes import Crashes
from cockpit.engine.record import Record
from cockpit.engine.rundir import RunDir, rundir_at, write_json
from cockpit.history.journal import Journal
from cockpit.history.state import State
from cockpit.history.trials import entry_of
from cockpit.model.crash import Crashed
from cockpit.model.environment import OTHER_HASHES
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeAsked, ChangeMoved
from cockpit.model.knobs import ANEW, RESTART

CRASH = Crashed(1020.0, 7, "OSError: No space left on device", 40, base="the hand-off", base_key="1", offered=True)
BASE, SETTINGS = Base("the hand-off", "1"), Settings({}, {}, {})


class Keeper:
    def poll(self) -> None:
        """It lives."""


@dataclass
class Room:
    crashes: Crashes
    record: Record
    run: RunDir

    @property
    def lives(self) -> list[str]:
        return sorted(path.name for path in self.run.data.glob("*life-*"))


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    run = rundir_at(tmp_path)
    write_json(run.facts_file, {"argv": ["python", "train.py"], "cwd": "/", "on_crash": "restart"})
    run.exit_status.write_text("7\n")
    record = Record(State(run="night", phase="running"), Journal(tmp_path / "journal", State()))
    beginnings = Beginnings(run, record, lambda: 1030.0)
    beginnings.environ = {"PATH": "/bin"}
    monkeypatch.setattr(next_life, "start_keeper", lambda *_: Keeper())
    return Room(Crashes(run, record, lambda: None, set(), beginnings, lambda: 1030.0, lambda: "r1"), record, run)


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_try_waits_until_there_is_room(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.crashes._wait(CRASH, BASE, SETTINGS, 0.0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(next_life.tempfile, "TemporaryFile", full)
        for _ in range(3):
            room.crashes.look()
        assert room.crashes.waits and room.record.state.phase == "starting" and room.lives == []
    room.crashes.look()
    assert not room.crashes.waits and room.lives == ["life-2"]


def test_where_none_comes_it_is_offered_and_the_run_ends_as_its_training_did(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.crashes._wait(CRASH, BASE, SETTINGS, 0.0, 1)
    monkeypatch.setattr(next_life.tempfile, "TemporaryFile", full)
    monkeypatch.setattr(crashes, "PATIENCE_S", 0.0)
    room.crashes.look()
    crash, entry = room.record.state.crash, entry_of(room.record.state, "r1")
    assert crash is not None and crash.offered and "No space left" in str(crash.reason)
    assert entry is not None and entry.state == "refused" and not room.crashes.waits
    assert not room.crashes.after_the_end(7, None), "the engine ends it with the status of its training"


@pytest.mark.parametrize("fails", ["write_json", "start_keeper"])
def test_one_that_cannot_be_started_all_the_same_was_never_there(
    room: Room, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    room.record.happen(CRASH)
    room.record.happen(ChangeAsked(1021.0, "r1", {RESTART: ANEW}, origin="crash"))
    with monkeypatch.context() as patch:
        patch.setattr(next_life, fails, full)
        room.crashes.follow("r1", BASE, SETTINGS)
    state, entry = room.record.state, entry_of(room.record.state, "r1")
    assert (state.phase, state.exit_status, room.lives) == ("ended", 7, [])
    assert state.crash is not None and state.crash.offered and "could not be started" in str(state.crash.reason)
    assert entry is not None and (entry.state, entry.reason) == ("refused", state.crash.reason)
    monkeypatch.setattr(room.crashes, "_goes_on_from", lambda: BASE)
    with monkeypatch.context() as patch:
        patch.setattr(next_life, fails, full)
        with pytest.raises(CockpitError, match="could not be started"):
            room.crashes.ask({}, "r2", None)
    assert (room.record.state.phase, room.record.state.exit_status) == ("ended", 7)
    assert room.crashes.ask({}, "r3", None)["begun"] and room.lives == ["life-2"], "the environment is not forgotten"


def test_what_it_goes_on_from_is_told_anew_with_what_it_goes_without(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.record.happen(ChangeAsked(1000.0, "k1", {"num_workers": 2}))
    room.record.happen(ChangeMoved(1001.0, "k1", "settling", step=30))
    room.crashes._wait(CRASH, BASE, SETTINGS, 0.0, 1)
    newer = Base("the hand-off after 3 epochs", "2", step=45)
    monkeypatch.setattr(room.crashes.bases, "find", lambda *_, **__: (newer, None))
    room.crashes.look()
    entry = entry_of(room.record.state, "r1")
    assert entry is not None and newer.words in str(entry.note) and "; without num_workers" in str(entry.note)
    assert str(entry.note).endswith(OTHER_HASHES), "nothing fixes the order of sets here"
    room.crashes._beginnings.environ = {"PYTHONHASHSEED": "0"}
    assert not room.crashes._goes_on(CRASH, ()).endswith(OTHER_HASHES)


def test_who_asks_while_there_is_no_room_takes_nothing_from_the_try_that_waits(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.crashes._wait(CRASH, BASE, SETTINGS, 0.0, 1)
    before = room.record.state
    monkeypatch.setattr(next_life.tempfile, "TemporaryFile", full)
    with pytest.raises(CockpitError, match="No space left"):
        room.crashes.ask({}, "r2", None)
    assert "No space left" in room.crashes.preview()["reason"]
    assert room.crashes.waits and room.record.state == before

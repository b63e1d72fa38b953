"""A hot restart whose engine cannot write: it lives on, what was prepared stands, and a stop is still a stop."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hearing import Room
from support.events import Story

from cockpit.engine import life_files, next_life, restarts
from cockpit.engine.crash_plan import Base, Settings
from cockpit.engine.next_life import Beginning
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


def hot(room: Room, run: Path) -> Callable[[], object]:
    """A restart of a training that runs."""
    it = Restarts(rundir_at(run), Record(room.state, Journal(run, State())), room.ears, lambda: 1020.0)
    return lambda: it._begin("r1", {"MINE": "7"}, {"env MINE": "7"}, {"env MINE": None})


def after_the_end(room: Room, run: Path) -> Callable[[], object]:
    """One that begins where none is left: by a person, or after a crash."""
    begun = Beginning("r1", Base("hand-off 1", "1"), Settings({}, {}, {}), {}, {}, {}, 1020.0, {})
    return lambda: next_life.begin_next(rundir_at(run), room.state, begun)


@pytest.mark.parametrize("way", [hot, after_the_end])
def test_whatever_could_not_be_written_once_is_in_nobodys_way_when_there_is_room_again(
    way: Callable[[Room, Path], Callable[[], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (restarts, next_life):
        monkeypatch.setattr(module, "start_keeper", lambda *_: None)
    failed = 0
    for nth in range(12):
        run = tmp_path / str(nth)
        run.mkdir()
        write_json(run / "run.json", {"argv": ["python", "train.py"], "cwd": "/"})
        write_json(run / lives.PIDS, {"keeper": 1, "training": os.getpid()})
        begin, left = way(Room(), run), set(os.listdir(run))
        if not fails_at(nth, begin, monkeypatch):
            break
        failed += 1
        assert set(os.listdir(run)) == left
        begin()
        assert set(os.listdir(run)) == left | {"life-2"}
        assert {lives.PLAN, "start.json", restarts.BACK} <= set(os.listdir(run / "life-2"))
    assert 5 <= failed < 12, "each of its folders, files and names, and no more than there are"


def fails_at(nth: int, begin: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it has failed, where its ``nth`` folder, file or new name does not fit any more."""
    made: list[object] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def or_full(*args: Any, **more: Any) -> Any:
            made.append(args)
            return full() if len(made) == nth + 1 else real(*args, **more)

        return or_full

    with monkeypatch.context() as patch:
        for module in (restarts, next_life):
            patch.setattr(module, "write_json", counted(write_json))
        patch.setattr(life_files.os, "rename", counted(os.rename))
        patch.setattr(Path, "mkdir", counted(Path.mkdir))
        try:
            begin()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return True
    return False

"""Old runs are forgotten, and nothing else ever is."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from cockpit.engine import prune
from cockpit.engine.prune import KEPT_S, old_runs
from cockpit.engine.rundir import RunDir, rundir_at
from cockpit.history.fold import fold
from cockpit.history.journal import Journal
from cockpit.history.state import State
from cockpit.model.events import RunStarted, TrainingEnded

NOW_S = 2e9


def ended(runs: Path, name: str, ended_s: float) -> RunDir:
    """A run as an engine leaves it."""
    data, state = runs / name, State()
    data.mkdir(parents=True)
    journal = Journal(data, state)
    for event in (RunStarted(1.0, name, ("python",), "/", "a.py", {}), TrainingEnded(2.0, 0)):
        state = fold(state, event)
        journal.append(event, state)
    journal.close()
    files = ("run.json", "start.json", "pids.json", "output.log", "engine.lock", "engine.log", "exit_status")
    for file in (*files, "trained.4711"):
        (data / file).write_text("0")
    os.utime(data / "exit_status", (ended_s, ended_s))
    return rundir_at(data, runs)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "KEPT", 2)


def test_old_and_many_are_forgotten_the_newest_and_the_young_are_kept(tmp_path: Path, few: None) -> None:
    ages = {"a": 9.0, "b": 4.0, "c": 3.0, "d": 2.0, "young": 0.9}
    for name, months in ages.items():
        ended(tmp_path, name, NOW_S - months * KEPT_S)
    (tmp_path / "running").mkdir()
    assert old_runs(RunDir("new", tmp_path / "new", tmp_path), NOW_S) == ["c", "b", "a"]
    assert sorted(os.listdir(tmp_path)) == ["d", "running", "young"]
    assert old_runs(RunDir("new", tmp_path / "new", tmp_path), NOW_S) == []


def test_later_processes_and_hand_offs_go_with_it(tmp_path: Path, few: None) -> None:
    for name in "abcd":
        run = ended(tmp_path, name, NOW_S - 9.0 * KEPT_S - ord(name))
        for folder in ("handoff/1", "handoff/2.new", "handoff/3.gone", "life-2/back", ".life-3.77"):
            (run.data / folder).mkdir(parents=True)
        for file in ("life-1.pid", "life-2-back.pid", "closed", "began", ".began.77"):
            (run.data / "handoff" / file).write_text("7")
        (run.data / "handoff" / "1" / "state.pt").write_text("x")
        (run.data / "left.json").write_text("{}")
    (tmp_path / "d" / "handoff" / "notes").mkdir()
    assert old_runs(RunDir("new", tmp_path / "new", tmp_path), NOW_S) == ["c"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "d"], "what is none of ours keeps all of it"


def spoil_nothing_of_ours(run: RunDir) -> None:
    (run.data / "notes.txt").write_text("mine")


def spoil_a_folder(run: RunDir) -> None:
    (run.data / "checkpoints").mkdir()


def spoil_the_end(run: RunDir) -> None:
    for path in run.data.glob("journal*"):
        path.unlink()


def spoil_the_facts(run: RunDir) -> None:
    run.facts_file.unlink()


def spoil_a_link(run: RunDir) -> None:
    run.output.unlink()
    run.output.symlink_to("/etc/passwd")


SPOILT = (spoil_nothing_of_ours, spoil_a_folder, spoil_the_end, spoil_the_facts, spoil_a_link)


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__[6:])
def test_a_folder_that_is_not_as_we_left_it_stays_whole(
    spoil: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "KEPT", 0)
    run = ended(tmp_path, "a", NOW_S - 2 * KEPT_S)
    spoil(run)  # type: ignore[operator]
    before = sorted(os.listdir(run.data))
    assert old_runs(RunDir("new", tmp_path / "new", tmp_path), NOW_S) == []
    assert sorted(os.listdir(run.data)) == before


def test_a_run_that_somebody_looks_at_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "KEPT", 0)
    run = ended(tmp_path, "a", NOW_S - 2 * KEPT_S)
    with open(run.lock, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert old_runs(RunDir("new", tmp_path / "new", tmp_path), NOW_S) == []
    assert old_runs(RunDir("new", tmp_path / "new", tmp_path), NOW_S) == ["a"]


def test_its_own_run_and_a_missing_folder_are_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "KEPT", 0)
    run = ended(tmp_path, "a", NOW_S - 2 * KEPT_S)
    assert old_runs(run, NOW_S) == [] and run.data.is_dir()
    assert old_runs(RunDir("x", tmp_path / "none" / "x", tmp_path), NOW_S) == []

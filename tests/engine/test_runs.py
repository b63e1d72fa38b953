"""Run folders: names, sockets nobody else can reach, listing, and finding the run that a person means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.engine.processes import boot_id
from cockpit.engine.rundir import (
    RunDir,
    new_rundir,
    read_json,
    rundir_at,
    runs_folder,
    safe_sockets,
    write_json,
)
from cockpit.engine.runs import list_runs, look, resolve
from cockpit.engine.start import ensure_engine
from cockpit.model.errors import NoSuchRun, StartError
from cockpit.probe import lives


def made(state_dir: Path, name: str, at_s: float, exit_status: str | None = None, **facts: object) -> RunDir:
    run = new_rundir("x", name, state_dir / "runs", state_dir)
    write_json(run.facts_file, {"started_s": at_s, "boot": boot_id(), "script": "train.py", **facts})
    if exit_status is not None:
        run.exit_status.write_text(exit_status)
    else:
        me = {
            "keeper": os.getpid(),
            "training": os.getpid(),
            "keeper_started": None,
            "training_started": None,
        }
        write_json(run.pids, me)
    return run


def test_names(tmp_path: Path) -> None:
    names = {new_rundir("some/path/train.py", None, tmp_path, tmp_path).name for _ in range(40)}
    assert len(names) == 40
    assert all(name.startswith("train-") and len(name) <= len("train-") + 12 for name in names)
    assert new_rundir("/x/weird näme (1).py", None, tmp_path, tmp_path).name.startswith("weird-n-me-1-")
    assert new_rundir("...", None, tmp_path, tmp_path).data.is_dir()
    for bad in ("", "a/b", "..", "-x", "a b", "x" * 81, "ü"):
        with pytest.raises(StartError, match="a run cannot be called"):
            new_rundir("x", bad, tmp_path, tmp_path)
    assert (tmp_path / next(iter(names))).stat().st_mode & 0o777 == 0o700


def test_socket_path_is_short_and_the_folders_own(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    run = rundir_at(deep)
    assert len(str(run.socket)) < 60 and run.socket != rundir_at(tmp_path).socket
    (tmp_path / "link").symlink_to(deep)
    assert rundir_at(tmp_path / "link").socket == run.socket


def test_where_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert runs_folder(None, {}) == Path("/home/me/.local/state/cockpit/runs")
    assert runs_folder(None, {"XDG_STATE_HOME": "/s"}) == Path("/s/cockpit/runs")
    assert runs_folder(None, {"XDG_STATE_HOME": "relative"}) == Path("/home/me/.local/state/cockpit/runs")
    assert runs_folder(tmp_path, {"XDG_STATE_HOME": "/s"}) == tmp_path / "runs"


def test_socket_folder_is_refused_where_others_can_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tmp_path / "good"
    assert safe_sockets(good) == good and good.stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(StartError, match="open to other users: run chmod 700"):
        safe_sockets(tmp_path / "open")
    (tmp_path / "link").symlink_to(good)
    with pytest.raises(StartError, match="not a link"):
        safe_sockets(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="/file"):
        safe_sockets(tmp_path / "file")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StartError, match="belongs to user"):
        safe_sockets(good)


def test_finding_the_run_that_is_meant(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRun, match="no runs yet") as caught:
        resolve(None, tmp_path)
    assert caught.value.code == 3
    old = made(tmp_path, "train-3f", 100.0, "0\n")
    new = made(tmp_path, "eval-3f", 200.0, "1\n")
    assert resolve(None, tmp_path) == RunDir(new.name, new.data, resolve(None, tmp_path).sockets)
    assert resolve("train-3f", tmp_path).data == resolve("t", tmp_path).data == old.data
    running = made(tmp_path, "train-3", 50.0)
    assert resolve(None, tmp_path).data == running.data
    assert resolve("train-3", tmp_path).data == running.data
    with pytest.raises(NoSuchRun, match="'train-' could be train-3 or train-3f"):
        resolve("train-", tmp_path)
    with pytest.raises(NoSuchRun, match="no run is called 'x'"):
        resolve("x", tmp_path)
    made(tmp_path, "other", 60.0)
    with pytest.raises(NoSuchRun, match="2 runs are running: name one of other, train-3"):
        resolve(None, tmp_path)
    assert resolve(str(old.data)).data == old.data
    assert [item.run.name for item in list_runs(tmp_path)] == ["eval-3f", "train-3f", "other", "train-3"]


def test_run_of_another_machine_is_not_taken_over(tmp_path: Path) -> None:
    run = made(tmp_path, "there", 1.0, boot="another boot", host="another machine")
    with pytest.raises(StartError, match="there was started on another machine"):
        ensure_engine(run)


def test_states_of_runs(tmp_path: Path) -> None:
    assert look(made(tmp_path, "a", 1.0)).state == "running"
    ended = look(made(tmp_path, "b", 1.0, "137\n"))
    assert (ended.state, ended.exit_status) == ("ended", 137)
    assert look(made(tmp_path, "c", 1.0, boot="another boot")).state == "lost"
    assert look(made(tmp_path, "g", 1.0, boot="another boot", host="another machine")).state == "elsewhere"
    torn = made(tmp_path, "d", 1.0)
    torn.pids.write_text('{"keeper": 1, "trai')
    assert look(torn).state == "starting"
    os.utime(torn.facts_file, (1.0, 1.0))
    assert look(torn).state == "lost"
    recycled = made(tmp_path, "e", 1.0)
    write_json(recycled.pids, {**read_json(recycled.pids), "training_started": 1})
    assert look(recycled).state == "lost"
    half = made(tmp_path, "f", 1.0)
    half.exit_status.write_text("")
    assert look(half).state == "running"


@pytest.mark.parametrize(
    ("facts", "restarted", "engine", "state"),
    [
        ({}, False, True, "ended"),
        ({"on_crash": "restart"}, False, True, "running"),
        ({"resume_with": "--resume {checkpoint}"}, False, True, "running"),
        ({}, True, True, "running"),
        ({}, True, False, "ended"),
        ({"on_crash": "restart"}, True, False, "ended"),
    ],
)
def test_who_may_be_tried_again_has_not_ended_before_its_engine_says_so(
    tmp_path: Path, facts: dict[str, str], restarted: bool, engine: bool, state: str
) -> None:
    run = made(tmp_path, "a", 1.0, **facts)
    if restarted:
        (run.data / "life-2").mkdir()
        write_json(run.data / "life-2" / lives.GO, {lives.HANDOFF: None})
    run.exit_status.write_text("1\n")
    write_json(run.engine_file, {"pid": os.getpid() if engine else 1 << 22, "started_ticks": None})
    assert look(run).state == state

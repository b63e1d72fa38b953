"""Why nothing is heard from a training: each likely reason from what the run's processes show, and none made up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from engine_runs import wait_for

from cockpit.engine.launch import INJECT
from cockpit.engine.missing import LIKELY_S, LOOK_S, SURE_S, Missing, Seen, flags_of, look, python_of, reason_of
from cockpit.engine.processes import Pids, Process, marked
from cockpit.engine.rundir import RunDir
from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.model.events import ProbeConnected
from cockpit.model.names import ENV_RUN

OURS = {ENV_RUN: "/runs/it", "PYTHONPATH": f"{INJECT}:/home/a"}


def python(*words: str, env: dict[str, str] | None = OURS, torch: bool = False, program: str = "python3.11") -> Seen:
    return Seen(7, "python", (f"/usr/bin/{program}", *words), env, program, torch)


SHELL = Seen(5, "bash", ("bash", "launch.sh"), OURS)
REPLACED = {**OURS, "PYTHONPATH": "."}

SURE = [
    ([python("-I", "train.py")], "-I (isolated)"),
    ([python("-uE", "train.py")], "-E (no environment)"),
    ([SHELL, python("train.py", env=REPLACED)], "write PYTHONPATH=.:$PYTHONPATH"),
    ([python("train.py", env={})], "an environment of its own"),
    ([python("train.py", program="python3.7")], "CPython 3.9 or newer"),
    ([python("train.py", program="pypy3.10")], "CPython 3.9 or newer"),
    # the launcher is open to us, and torch is loaded in the one that is not
    ([python("launch.py"), python("train.py", env=REPLACED, torch=True)], "PYTHONPATH"),
]
LIKELY = [
    ([python("train.py")], "torch has not been imported yet"),
    ([python("train.py", env=None)], "torch has not been imported yet"),
    ([python("launch.py"), python("train.py", env=REPLACED)], "PYTHONPATH"),
    ([python("train.py", torch=True)], "torch is being imported in process 7"),
    ([replace(python("train.py", torch=True), apart="it runs as another user (0)")], "no probe answers: it runs as"),
    ([SHELL], "no Python runs in it yet, only bash"),
    ([SHELL, Seen(6, "docker", ("/usr/bin/docker", "run"), OURS)], "container or sandbox (docker)"),
    ([SHELL, Seen(6, "ssh", ("ssh", "node"), OURS)], "started by ssh"),
    ([], "no process of the run"),
]


@pytest.mark.parametrize(("seen", "told"), SURE)
def test_what_is_seen_is_told_soon(seen: list[Seen], told: str) -> None:
    assert reason_of(seen, str(INJECT), None, SURE_S - 1) is None
    assert told in (reason_of(seen, str(INJECT), None, SURE_S) or "")


@pytest.mark.parametrize(("seen", "told"), LIKELY)
def test_what_is_likely_is_told_when_torch_has_had_its_time(seen: list[Seen], told: str) -> None:
    assert reason_of(seen, str(INJECT), None, LIKELY_S - 1) is None
    assert told in (reason_of(seen, str(INJECT), None, LIKELY_S) or "")


def test_an_error_of_the_probe_comes_before_any_guess() -> None:
    assert "AttributeError: no guard" in (reason_of([], str(INJECT), "AttributeError: no guard", 0.0) or "")


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("train.py -I", ""),
        ("-u -I -m x -S", "uI"),
        ("-W error -E train.py", "E"),
        ("-Werror -X dev -c pass -I", ""),
        ("--version -S", "S"),
        ("-", ""),
    ],
)
def test_only_pythons_own_options_count(words: str, flags: str) -> None:
    assert flags_of(["python", *words.split()]) == flags


@pytest.mark.parametrize(("program", "is_one"), [("python3.13t", True), ("python", True), ("python3.11-config", False)])
def test_an_interpreter_is_known_by_its_file(program: str, is_one: bool) -> None:
    assert bool(python_of(f"/opt/x/bin/{program}")) == is_one


def test_what_keeps_a_process_from_us_is_seen_and_not_guessed(tmp_path: Path) -> None:
    there, hidden = tmp_path / "sockets", tmp_path / "hidden"
    there.mkdir()
    (mine,) = look(Path("/proc"), [os.getpid()], (there,))
    assert mine.apart is None
    (mine,) = look(Path("/proc"), [os.getpid()], (there, hidden))
    assert mine.apart == f"{hidden} is hidden from it"
    proc = tmp_path / "proc" / "7"
    proc.mkdir(parents=True)
    (proc / "stat").write_text("7 (python) S 1 " + "0 " * 50)
    (proc / "cmdline").write_text("python\0train.py\0")
    (proc / "status").write_text(f"Name:\tpython\nUid:\t{os.geteuid()}\t{os.geteuid() + 1}\t0\t0\n")
    (other,) = look(tmp_path / "proc", [7], (there,))
    assert other.apart == f"it runs as another user ({os.geteuid() + 1})"
    (proc / "status").write_text(f"Uid:\t0\t{os.geteuid()}\t0\t0\n")
    (closed,) = look(tmp_path / "proc", [7], (there,))
    assert closed.apart is None, "what cannot be looked into is no reason"


def running(**more: object) -> State:
    return State(run="it", phase="running", started_s=1000.0, argv=(sys.executable, "-I", "-c", "1"), **more)  # type: ignore[arg-type]


def test_a_living_process_is_looked_at_and_the_reason_told_once(tmp_path: Path) -> None:
    run = RunDir("it", tmp_path, tmp_path)
    env = {**os.environ, ENV_RUN: str(tmp_path), "PYTHONPATH": str(INJECT)}
    sleeper = subprocess.Popen([sys.executable, "-I", "-c", "input()"], env=env, stdin=subprocess.PIPE)
    try:
        ours: tuple[Process, ...] = wait_for(lambda: marked(run), "it is there")
        assert [process.pid for process in ours] == [sleeper.pid]
        (seen,) = look(Path("/proc"), [sleeper.pid, 2**22 + 1])
        assert seen.python and seen.argv[1] == "-I" and seen.env and seen.env[ENV_RUN] == str(tmp_path)
        missing, state, now = Missing(run, ()), running(), time.monotonic()
        pids = Pids(1, sleeper.pid)
        (event,) = missing.look(now, pids, state, 1000.0 + SURE_S)
        assert "-I (isolated)" in (event.reason or "")
        assert missing.look(now + LOOK_S - 1, pids, state, 1010.0) == [], "not again so soon"
        told = fold_all([event], state)
        assert told.probe_reason == event.reason
        assert missing.look(now + LOOK_S, pids, told, 1020.0) == [], "told already"
        heard = fold_all([ProbeConnected(1021.0, 7, "2.14.1", "3.11.2")], told)
        assert heard.probe_reason is None
        assert missing.look(now + 9 * LOOK_S, pids, heard, 1030.0) == missing.last_look(heard, 1030.0) == []
    finally:
        sleeper.communicate()


def test_after_the_end_the_command_and_what_was_left_behind_still_tell(tmp_path: Path) -> None:
    run = RunDir("it", tmp_path, tmp_path)
    (event,) = Missing(run, running().argv).last_look(running(), 1001.0)
    assert "-I (isolated)" in (event.reason or "")
    assert Missing(run, (sys.executable, "train.py")).last_look(running(), 1001.0) == []
    run.probe_error.write_text("ImportError: no module\n")
    (event,) = Missing(run, (sys.executable, "train.py")).last_look(running(), 1001.0)
    assert (event.reason or "").endswith("ImportError: no module")


def test_a_whole_run_says_why(start) -> None:
    state = start([sys.executable, "-S", "-c", "pass"]).ended()
    assert (state.probe, "-S (no site)" in (state.probe_reason or "")) == ("waiting", True)

"""Stopping and the end: who is signalled, who never is. Real processes; the marks are what tells them apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from engine_runs import Started, python, scripted, wait_for

from cockpit.engine import processes
from cockpit.engine.start import ensure_engine

SPAWN = """
import os, subprocess, sys, time
def child(name, seconds=60, **more):
    code = f"import ctypes, signal, time; ctypes.CDLL(None).prctl(15, {name!r}.encode()); {more.get('before', 'pass')}; time.sleep({seconds})"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env=more.get("env"))
"""  # noqa: E501


def training(body: str) -> list[str]:
    return python(SPAWN + textwrap.dedent(body))


def named(run: Started, name: str) -> list[int]:
    return [process.pid for process in processes.marked(run.run) if process.name == name]


def gone(pid: int) -> bool:
    return not processes.is_alive(pid, None)


@pytest.fixture
def foreign():
    """A process that looks like a loader worker of somebody else's."""
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'pt_data_worker'); print(1, flush=True); time.sleep(300)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_normal_end_reaps_workers_and_names_others(start, foreign) -> None:
    body = """
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    child("pt_data_worker"), child("pt_data_worker", before=stubborn), child("uploader")
    time.sleep(2.5)
    """
    run: Started = start(training(body))
    workers = wait_for(lambda: len(found := named(run, "pt_data_worker")) == 2 and found, "the workers are there")
    uploader = wait_for(lambda: named(run, "uploader"), "the uploader is there")[0]
    state = run.ended()
    assert state.exit_status == 0
    assert state.survivors == (f"{uploader} uploader",)
    assert all(gone(pid) for pid in workers)
    assert not gone(uploader) and foreign.poll() is None


def test_workers_of_a_killed_training_are_reaped(start) -> None:
    run = start(training("child('pt_data_worker'); time.sleep(60)"))
    worker = wait_for(lambda: named(run, "pt_data_worker"), "the worker is there")[0]
    os.kill(run.training(), signal.SIGKILL)
    assert run.ended().exit_status == 137
    assert gone(worker)


def test_soft_stop_signals_the_training_alone(start) -> None:
    body = """
    import signal
    helper = child("helper")
    def save(*_):
        print("helper lives" if helper.poll() is None else "helper gone", flush=True); sys.exit(9)
    signal.signal(signal.SIGTERM, save)
    time.sleep(60)
    """
    run = start(training(body))
    helper = wait_for(lambda: named(run, "helper"), "the helper is there")[0]
    answer = run.ask("stop", grace_s=2.5)
    assert answer["ok"] and 2 < answer["result"]["grace_s"] <= 2.5
    wait_for(run.run.exit_status.exists, "the training has saved")
    assert not gone(helper) and run.status()["state"] == "stopping", "it may have something to end, too"
    state = run.ended()
    assert state.exit_status == 9
    assert run.run.output.read_text() == "helper lives\n"
    assert gone(helper) and state.survivors == ()


def test_after_the_grace_everything_with_the_mark_goes_and_nothing_else(start, foreign) -> None:
    body = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child("stubborn", before="signal.signal(signal.SIGTERM, signal.SIG_IGN)"); child("gentle")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:  # a daemon: of nobody's session, and no child of anything here
            import ctypes
            ctypes.CDLL(None).prctl(15, b"daemon")
            time.sleep(60)
        os._exit(0)
    print(child("unmarked", env={}).pid, flush=True)
    time.sleep(60)
    """
    run = start(training(body))
    names = ("stubborn", "gentle", "daemon")
    ours = wait_for(lambda: len(found := [pid for n in names for pid in named(run, n)]) == 3 and found, "children")
    unmarked = int(wait_for(run.run.output.read_text, "the other child"))
    try:
        assert run.ask("stop", grace_s=0.3)["ok"]
        state = run.ended()
        assert state.exit_status == 137 and state.survivors == (f"{unmarked} unmarked",)
        assert all(gone(pid) for pid in ours)
        assert not gone(unmarked) and foreign.poll() is None
    finally:
        os.kill(unmarked, signal.SIGKILL)


TITLE = """
def wipe():  # what setproctitle does to the variables that /proc shows
    import ctypes
    first, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
    ctypes.memset(first, 0, end - first)
"""


def test_whoever_has_written_a_title_over_the_mark_is_found_by_its_parents(start, foreign) -> None:
    """The training has set its title before it forked its workers and a helper, so that none of them shows the mark."""
    body = """
    import ctypes, signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wipe()
    for name in (b"pt_data_worker", b"helper"):
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(15, name)
            time.sleep(60)
    print(child("unmarked", env={}).pid, flush=True)
    time.sleep(60)
    """
    run: Started = start(python(SPAWN + TITLE + textwrap.dedent(body)))
    unmarked = int(wait_for(run.run.output.read_text, "the other child"))
    try:
        worker = wait_for(lambda: named(run, "pt_data_worker"), "the worker is there")[0]
        helper = wait_for(lambda: named(run, "helper"), "the helper is there")[0]
        assert run.ask("stop", grace_s=0.3)["ok"]
        state = run.ended()
        assert state.exit_status == 137 and state.survivors == (f"{unmarked} unmarked",)
        assert gone(worker) and gone(helper)
        assert not gone(unmarked) and foreign.poll() is None
    finally:
        os.kill(unmarked, signal.SIGKILL)


def test_force_shortens_a_grace_that_runs(start) -> None:
    body = "import signal; signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True)); child('x')\n"
    run = start(training(body + "while True: time.sleep(1)"))
    wait_for(lambda: named(run, "x"), "it is up")
    first = run.ask("stop")["result"]
    again = run.ask("stop")["result"]
    assert again["again"] and again["until_s"] == pytest.approx(first["until_s"], abs=0.01)
    assert run.status()["state"] == "stopping"
    refused = run.ask("set", knobs={"num_workers": 2})
    assert not refused["ok"] and "is stopping" in refused["error"]
    forced = run.ask("stop", force=True)["result"]
    assert forced["until_s"] < first["until_s"] - 20
    assert run.ended().exit_status == 137
    assert run.run.output.read_text() == "asked\n", "a second signal ends many programs in the middle of saving"


def test_shell_is_stopped_with_the_training_that_it_runs(start) -> None:
    inner = " ".join(f"'{word}'" for word in scripted("--epochs", 99, "--steps", 500, "--save-s", 1.5))
    run = start(["/bin/sh", "-c", f"{inner}; echo after"])
    run.until("it trains", lambda status: status["step"])
    assert run.ask("stop")["ok"]
    state = run.ended()
    assert state.exit_status == 143 and state.survivors == ()
    lines = run.run.output.read_text().splitlines()
    assert lines[-2:] == ["saving", "saved"]


def test_training_of_a_parent_that_does_not_tell_it_is_told(start) -> None:
    """As ``Process(target=train)``: the parent dies of its signal, the training would go on without it for ever."""
    parent = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-m', 'cockpit.engine.scripted', *%r]))"
    words = ["--epochs", "50", "--save-s", "1.5"]
    run: Started = start(python(parent % (words,)), grace_s=60.0)
    run.until("the child trains", lambda status: status["step"])
    assert run.ask("stop")["ok"]
    state = run.ended(30.0)
    assert (state.exit_status, state.survivors) == (143, ())
    lines = run.run.output.read_text().splitlines()
    assert lines[-2:] == ["saving", "saved"], "told once: a second signal would have ended the saving"


def test_two_runs_do_not_meet(start) -> None:
    first = start(training("child('pt_data_worker'); time.sleep(60)"))
    second = start(training("child('pt_data_worker'); time.sleep(60)"))
    theirs = wait_for(lambda: named(second, "pt_data_worker"), "the other run's worker is there")
    wait_for(lambda: named(first, "pt_data_worker"), "this run's worker is there")
    first.ask("stop", force=True)
    first.ended()
    assert not gone(theirs[0]) and second.status()["state"] == "running"
    second.ask("stop", force=True)
    second.ended()


def test_stop_is_remembered_by_the_next_engine(start) -> None:
    body = "import signal; signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True)); print(1, flush=True)"
    run = start(training(body + "\nwhile True: time.sleep(1)"))
    wait_for(run.run.output.read_text, "it minds the signal in its own way")
    run.ask("stop", grace_s=2.0)
    run.kill_engine()
    assert ensure_engine(run.run)
    assert run.ended().exit_status == 137
    assert run.run.output.read_text() == "1\nasked\n", "told once, whoever told it"


@pytest.mark.long
def test_soft_stop_lets_a_long_save_finish(start) -> None:
    run = start(scripted("--epochs", 99, "--steps", 500, "--save-s", 8))
    run.until("it trains", lambda status: status["step"])
    run.ask("stop")
    state = run.ended()
    assert state.exit_status == 143
    assert run.run.output.read_text().splitlines()[-1] == "saved"

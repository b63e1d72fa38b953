"""Hand-offs are kept as long as something can go on from them, and not a moment longer: they may be gigabytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_runs import Started, python, scripted, wait_for

from cockpit.engine.rundir import RunDir
from cockpit.engine.runs import look
from cockpit.engine.spent import remove_handoffs
from cockpit.engine.start import ensure_engine

STEPS, EPOCHS = 20, 4


def training(*options: object, epochs: int = EPOCHS) -> list[str]:
    return scripted("--session", "--epochs", epochs, "--steps", STEPS, "--speed", 20, *options)


def handoffs(run: Started) -> list[str]:
    folder = run.run.data / "handoff"
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def test_only_what_bears_the_name_of_a_hand_off_goes(tmp_path: Path) -> None:
    run = RunDir("a", tmp_path / "a", tmp_path)
    for name in (*(f"handoff/{each}" for each in ("3", "4", "5.new", "2.gone", "notes", "4.pt")), "life-2"):
        (run.data / name).mkdir(parents=True)
        (run.data / name / "state.pt").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "state.pt").write_text("x")
    (run.data / "handoff" / "6").symlink_to(tmp_path / "elsewhere")
    (run.data / "handoff" / "life-1.pid").write_text("7")
    thread = remove_handoffs(run)
    assert thread is not None and not thread.daemon, "the engine ends after it"
    thread.join(30.0)
    assert sorted(os.listdir(run.data / "handoff")) == ["4.pt", "6", "life-1.pid", "notes"]
    assert (tmp_path / "elsewhere" / "state.pt").exists() and (run.data / "life-2").exists()
    assert remove_handoffs(run) is None and remove_handoffs(RunDir("b", tmp_path / "b", tmp_path)) is None


def test_after_status_0_nothing_is_left(start) -> None:
    run = start(training(epochs=1), handoff_every=1)
    assert run.ended().exit_status == 0
    wait_for(lambda: not handoffs(run), "they are gone")


@pytest.mark.long
@pytest.mark.parametrize("status", [3, -9])
def test_after_another_end_they_stay(start, status: int) -> None:
    run = start(training("--exit", status), handoff_every=1)
    assert run.ended().exit_status == (status if status > 0 else 137)
    wait_for(lambda: look(run.run).state == "ended", "the end")
    assert handoffs(run) == ["1", "2", "3", "4"], "the scripted one keeps all"


def asked(run: Started, **more: object) -> dict[str, object] | None:
    ensure_engine(run.run, to_show=True)  # of a run that has ended it stays for a moment only
    try:
        return run.ask("restart", env={}, **more)
    except (OSError, AssertionError):  # it has just left
        return None


@pytest.mark.long
def test_a_stop_that_the_script_takes_well_leaves_what_a_person_may_go_on_from(start) -> None:
    """It saves and ends with status 0: whoever stopped it may want the rest, too."""
    run = start(training("--save-s", 0.1, "--stop-status", 0, epochs=400), handoff_every=1)
    run.until("a hand-off", lambda status: status["handoff"])
    assert run.ask("stop")["ok"]
    assert run.ended().exit_status == 0 and handoffs(run)
    answer = wait_for(lambda: asked(run, environ=dict(os.environ)), "an answer")
    assert answer["ok"] and "goes on from the hand-off" in answer["result"]["note"], answer
    assert run.ask("stop")["ok"]
    wait_for(lambda: run.run.output.read_text().count("begins at epoch") == 2, "another process")


@pytest.mark.long
def test_a_process_that_goes_on_behind_a_shell_that_ends_well_keeps_its_own(start) -> None:
    """The shell is what was started: its status 0 tells nothing of a training that it has left running."""
    trains = " ".join(training(epochs=400))
    run = start(["sh", "-c", f"{trains} & while ! test -e {{go}}; do sleep 0.1; done".format(go="go")], handoff_every=1)
    run.until("a hand-off", lambda status: status["handoff"])
    Path(run.run.facts()["cwd"], "go").touch()
    wait_for(lambda: look(run.run).state == "ended", "the shell's end")
    assert handoffs(run), "it still writes them"
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_of(run, int(pid))]
    for pid in left:
        os.kill(int(pid), 9)


def is_of(run: Started, pid: int) -> bool:
    try:
        return f"COCKPIT_RUN={run.run.data}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.long
def test_a_run_without_any(start) -> None:
    run = start(python("pass"))
    assert run.ended().exit_status == 0 and handoffs(run) == []

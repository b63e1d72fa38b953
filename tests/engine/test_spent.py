"""Hand-offs are kept as long as something can go on from them, and not a moment longer: they may be gigabytes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from engine_runs import Started, python, scripted, wait_for

from cockpit.engine.crash_plan import Base, Left
from cockpit.engine.rundir import RunDir
from cockpit.engine.runs import look
from cockpit.engine.spent import are_spent, remove_handoffs
from cockpit.engine.start import ensure_engine
from cockpit.history.report import text_of
from cockpit.probe import lives
from cockpit.probe.handoff.claim import AGAIN, OTHERS, TAKEN, THROUGH, close

STEPS, EPOCHS = 20, 4


def training(*options: object, epochs: int = EPOCHS) -> list[str]:
    return scripted("--session", "--epochs", epochs, "--steps", STEPS, "--speed", 20, *options)


def handoffs(run: Started) -> list[str]:
    folder = run.run.data / "handoff"
    return sorted(name for name in os.listdir(folder) if name[0].isdigit()) if folder.is_dir() else []


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


WELL = Left(7, None, True)
LAST, MIDDLE = 4, 2


@pytest.mark.parametrize(
    ("closed", "epoch", "left", "spent"),
    [
        (THROUGH, MIDDLE, WELL, True),  # it was sparing with them
        (THROUGH, MIDDLE, Left(8, None, False), True),  # another script has ended after it
        (None, LAST, WELL, True),
        (None, MIDDLE, WELL, False),  # break, or a signal that the script takes well
        (None, MIDDLE, Left(7, "RuntimeError: no", True), False),  # behind a shell
        (None, LAST, Left(7, "RuntimeError: no", True), False),  # what follows the loop
        (None, LAST, Left(8, None, False), False),
        (None, LAST, None, False),  # killed
        (None, None, WELL, False),  # none, or none that is whole
        (OTHERS[AGAIN], MIDDLE, WELL, True),
        (OTHERS[AGAIN], MIDDLE, Left(7, "RuntimeError: no", True), False),
        (OTHERS[TAKEN], MIDDLE, WELL, False),
        ("another reason", MIDDLE, WELL, False),
    ],
)
def test_status_0_alone_does_not_say_that_it_is_through(
    tmp_path: Path, closed: str | None, epoch: int | None, left: Left | None, spent: bool
) -> None:
    run = RunDir("a", tmp_path / "a", tmp_path)
    (run.data / "handoff").mkdir(parents=True)
    if closed is not None:
        close(str(run.data / "handoff"), closed)
    newest = Base("it", "1", path="1", epochs_left=LAST - epoch) if epoch is not None and closed is None else None
    assert are_spent(run, newest, left) == spent


def test_what_was_raised_behind_a_shell_that_ends_well_is_told_and_offered(start) -> None:
    """No pipefail: the commonest way to start a training hides how it ended."""
    trains = " ".join(training("--crash-at", 50, "--crash-by", "raise"))
    run = start(["sh", "-c", f"{trains} | cat"], on_crash=True)
    state = run.ended()
    assert (state.exit_status, handoffs(run)) == (0, ["1", "2"])
    assert state.crash is not None and state.crash.cause == "RuntimeError: a bad batch" and state.crash.offered
    told = "\n".join(text_of(state, state.at_s))
    assert "RuntimeError: a bad batch" in told and "ended with status 0 all the same" in told
    assert f"cockpit restart {state.run} goes on from the hand-off after 2 epochs" in told
    answer = wait_for(lambda: asked(run, environ=dict(os.environ), only_look=True), "an answer")
    assert answer["ok"] and "the hand-off after 2 epochs" in answer["result"]["goes_on"], answer


ENDS = {
    "raised": "if epoch == 2: raise RuntimeError('no')",
    "raised behind the loop": "",
    "told to end": "if epoch == 2: os.kill(os.getpid(), signal.SIGTERM)",
    "break": "if epoch == 2: break",
    "over": "",
}
SCRIPT = """
import os, signal, sys, cockpit, torch
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(torch.randn(32, 2), batch_size=2)
run = cockpit.session(model=model, optimizer=optimizer)
for epoch in run.epochs(4):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    {end}
{behind}
"""


@pytest.mark.long
@pytest.mark.parametrize("command", ["{}", "{} | cat"])
@pytest.mark.parametrize("end", list(ENDS))
def test_they_go_where_it_is_through_whatever_started_it(start, tmp_path: Path, end: str, command: str) -> None:
    behind = "raise RuntimeError('no')" if end == "raised behind the loop" else ""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(end=ENDS[end], behind=behind))
    run = start(["sh", "-c", command.format(f"{sys.executable} {script}")], handoff_every=1)
    state = run.ended(120.0)
    raised = "raised" in end
    assert (state.exit_status == 0) == (command != "{}" or not raised)
    assert (state.crash is not None) == raised, state.crash
    if end == "over":
        wait_for(lambda: not handoffs(run), "they are gone")
        return
    wait_for(lambda: look(run.run).state == "ended", "the end")
    assert handoffs(run), run.run.output.read_text()
    answer = wait_for(lambda: asked(run, environ=dict(os.environ), only_look=True), "an answer")["result"]
    assert answer["reason"] is None and "goes on from the hand-off" in answer["goes_on"], answer


@pytest.mark.long
@pytest.mark.parametrize("command", ["{}", "{} | cat"])
def test_a_signal_that_the_script_takes_well_leaves_them(start, command: str) -> None:
    """A scheduler sends it; nobody has asked cockpit to stop."""
    trains = " ".join(training("--save-s", 0, "--stop-status", 0, epochs=400))
    run = start(["sh", "-c", command.format(trains)], handoff_every=1)
    run.until("a hand-off", lambda status: status["handoff"])
    ((pid, _),) = lives.trained(str(run.run.data))
    os.kill(pid, signal.SIGTERM)
    state = run.ended()
    assert state.exit_status == 0 and state.crash is None and handoffs(run)
    answer = wait_for(lambda: asked(run, environ=dict(os.environ)), "an answer")
    assert answer["ok"] and "goes on from the hand-off" in answer["result"]["note"], answer
    wait_for(lambda: run.run.output.read_text().count("begins at epoch") == 2, "another process")
    assert run.ask("stop")["ok"]
    run.ended()


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

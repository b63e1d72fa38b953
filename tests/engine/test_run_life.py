"""A run from start to end with real processes: what is promised about exit statuses, ends, engines and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_runs import Started, python, scripted, wait_for

from cockpit.engine import processes
from cockpit.engine.rundir import RunDir, new_rundir, safe_sockets, write_json
from cockpit.engine.start import Spec, _spawn_engine, answers, ensure_engine, start_run
from cockpit.history.fold import fold_all
from cockpit.history.journal import read_events, read_state
from cockpit.model.errors import StartError


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("1/0", 1),
    ],
)
def test_exit_status_is_the_trainings_own(start, source: str, status: int) -> None:
    run = start(python(source))
    assert run.ended().exit_status == status
    assert processes.read_exit(run.run) == (status, None)


def test_program_that_cannot_run_leaves_a_sentence_and_a_record(start, tmp_path: Path, state_dir: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(StartError, match="No such file") as caught:
        start([str(broken)], name="broken")
    assert caught.value.code == 127
    state = read_state(state_dir / "runs" / "broken")
    assert state is not None and (state.phase, state.exit_status) == ("ended", 127)


def test_steps_change_and_end_are_recorded(start) -> None:
    run: Started = start(scripted("--epochs", 2, "--steps", 150, "--speed", 4))
    run.until("steps are seen", lambda status: status["step"])
    assert run.ask("set", knobs={"num_workers": 4}, now=True)["ok"]
    status = run.until("the change lands", lambda status: status["knobs"]["num_workers"]["in_force"] == 4 and status)
    assert status["probe"] == "connected" and status["pid"] == run.training()
    assert status["ledger"][0]["change"] == {"num_workers": [0, 4]}
    state = run.ended()
    assert (state.exit_status, state.step, state.epoch) == (0, 300, 1)
    assert [(epoch.epoch, epoch.samples) for epoch in state.epochs] == [(0, 2400), (1, 2400)]
    assert state.output is not None and state.output.line == "epoch 1 step 300 loss 0.2500"
    assert fold_all(read_events(run.run.data)) == state
    wait_for(lambda: not answers(run.run), "the engine leaves")
    assert not run.run.socket.exists() and not run.run.pointer.exists()
    assert run.run.engine_log.read_bytes() == b""


def test_training_as_short_as_a_blink_is_known_to_its_last_step(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 12, "--speed", 20))
    state = run.ended()
    assert state.exit_status == 0 and state.probe == "lost"
    assert [epoch.steps for epoch in state.epochs] == [12]


def test_new_engine_takes_over_from_a_killed_one(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 2500, "--speed", 10))
    run.until("a sample", lambda status: status["step"])
    run.ask("set", knobs={"num_workers": 2})
    before = run.status()
    killed = run.kill_engine()
    assert processes.is_alive(run.training(), None)
    assert ensure_engine(run.run)
    assert run.engine() != killed
    after = run.until("the probe is back", lambda status: status["probe"] == "connected" and status)
    assert after["ledger"] == before["ledger"] and after["run"] == before["run"] and after["pid"] == before["pid"]
    later = run.until("steps go on", lambda status: status["step"] > before["step"] and status)
    assert later["step"] > before["step"]
    run.ask("set", knobs={}, now=True)
    run.until("the change arrives", lambda status: status["knobs"]["num_workers"]["in_force"] == 2)
    assert run.ended().exit_status == 0
    assert fold_all(read_events(run.run.data)) == read_state(run.run.data)


def test_end_that_no_engine_saw_is_still_known(start) -> None:
    run = start(python("import time; time.sleep(1.0); raise SystemExit(5)"))
    run.kill_engine()
    wait_for(lambda: processes.read_exit(run.run), "the keeper writes the status")
    ensure_engine(run.run)
    assert run.ended().exit_status == 5
    wait_for(lambda: not answers(run.run), "the engine leaves")
    assert not ensure_engine(run.run)


def test_hang_up_to_everything_changes_nothing(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 600, "--speed", 8))
    pids = processes.read_pids(run.run)
    assert pids is not None
    for pid in (run.engine(), pids.keeper):
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGINT)
    os.kill(pids.keeper, signal.SIGTERM)
    assert run.ended().exit_status == 0


def test_processes_have_sessions_of_their_own(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 100, "--speed", 8))
    pids = processes.read_pids(run.run)
    assert pids is not None
    sessions = {os.getsid(pid) for pid in (run.engine(), pids.keeper, os.getpid())}
    assert len(sessions) == 3
    assert os.getsid(pids.training) == pids.keeper != os.getpgid(pids.training) == pids.training
    assert os.readlink(f"/proc/{pids.training}/fd/0") == "/dev/null"
    assert os.readlink(f"/proc/{pids.training}/fd/1") == str(run.run.output)


def test_keeper_that_is_killed_costs_only_the_status(start) -> None:
    run = start(python("import time; time.sleep(1.5)"))
    pids = processes.read_pids(run.run)
    assert pids is not None
    os.kill(pids.keeper, signal.SIGKILL)
    time.sleep(0.6)
    assert run.status()["state"] == "running"
    state = run.ended()
    assert (state.phase, state.exit_status) == ("lost", None)


def test_two_engines_race_and_one_stays(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 1500, "--speed", 8))
    run.kill_engine()
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(ensure_engine(run.run))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [True] * 4
    first = run.engine()
    ours = b"engine/__main__.py\0" + os.fsencode(run.run.data)

    def engines() -> list[int]:
        return [pid for pid in processes.list_pids(processes.PROC) if ours in command_of(pid)]

    wait_for(lambda: engines() == [first], "the others to leave")
    assert run.engine() == first


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_engine_that_comes_before_the_start_leaves_it_alone(state_dir: Path, tmp_path: Path) -> None:
    run = new_rundir("x", "early", state_dir / "runs", safe_sockets())
    write_json(run.facts_file, {"started_s": time.time(), "boot": processes.boot_id(), "run": "early"})
    early = threading.Thread(target=lambda: ensure_engine(run))
    early.start()
    time.sleep(0.3)
    plan = {"argv": python("import time; time.sleep(1.5)"), "env": dict(os.environ), "cwd": "/"}
    _spawn_engine(run, json.dumps(plan).encode(), os.environ)
    early.join(20)
    assert Started(run).ended().exit_status == 0


def test_socket_that_vanished_is_bound_again(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 1200, "--speed", 4))
    run.until("a sample", lambda status: status["step"])
    watching = run.client()
    watching.say(m="watch")
    assert watching.hear()["m"] == "snapshot"
    engine = watching.engine()
    run.run.socket.unlink()
    run.run.pointer.unlink()
    wait_for(lambda: answers(run.run), "the socket is back", 10)
    assert run.engine() == engine and run.run.pointer.exists()
    assert watching.hear()["m"] == "event"
    watching.close()


def test_name_that_is_taken_is_refused(start) -> None:
    start(python("pass"), name="once").ended()
    with pytest.raises(StartError, match="a run named once is already there") as caught:
        start(python("pass"), name="once")
    assert caught.value.code == 125


def test_environment_reaches_the_training_alone(state_dir: Path, tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "MINE": "a b\udcff",
        "PYTHONPATH": "/their/own",
        "COCKPIT_RUN": "/outer",
    }
    source = "import os, json; print(json.dumps(dict(os.environ)))"
    spec = Spec(python(source), is_script=False, state_dir=state_dir, cwd=tmp_path, environ=environ)
    run = Started(start_run(spec))
    engine = run.engine()
    assert b"COCKPIT_RUN" not in Path(f"/proc/{engine}/environ").read_bytes()
    run.ended()
    seen = json.loads(run.run.output.read_text())
    assert seen["MINE"] == environ["MINE"] and seen["COCKPIT_RUN"] == str(run.run.data)
    first, *rest = seen["PYTHONPATH"].split(":")
    assert Path(first).name == "inject" and rest == ["/their/own"]
    assert "a b" not in "".join(path.read_text(errors="replace") for path in run.run.data.glob("*.json"))


def test_start_is_quick_and_imports_little() -> None:
    code = (
        "import sys; import cockpit.engine.start; "
        "print([name for name in ('torch', 'textual', 'rich', 'numpy', 'asyncio', 'psutil') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"


def test_start_that_was_given_up_does_not_happen_later(start, tmp_path: Path, state_dir: Path, monkeypatch) -> None:
    """On a busy machine the engine comes too late: whoever was told 125 may start the training once more."""
    monkeypatch.setattr("cockpit.engine.start.START_S_AT_MOST", 0.0)
    with pytest.raises(StartError, match="nothing was started") as caught:
        start(python(f"open({str(tmp_path / 'ran')!r}, 'w')"), name="late")
    assert caught.value.code == 125
    data = state_dir / "runs" / "late"

    def ended() -> bool:
        state = read_state(data)
        return state is not None and (state.phase, state.exit_status) == ("ended", 125)

    wait_for(ended, "the engine sees that nobody waits")
    assert not (tmp_path / "ran").exists() and not (data / "pids.json").exists()


def test_start_that_is_happening_when_patience_ends_is_waited_for(start, monkeypatch) -> None:
    monkeypatch.setattr("cockpit.engine.start.START_S_AT_MOST", 0.0)

    def claimed_by_the_engine(run: RunDir) -> bool:
        monkeypatch.setattr("cockpit.engine.start.START_S_AT_MOST", 60.0)
        return False

    monkeypatch.setattr(RunDir, "claim_start", claimed_by_the_engine)
    assert start(python("pass")).ended().exit_status == 0


def test_start_is_claimed_once(tmp_path: Path) -> None:
    run = RunDir("it", tmp_path, tmp_path)
    assert [run.claim_start() for _ in range(3)] == [True, False, False]

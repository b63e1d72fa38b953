"""The environment that people ask for, with real processes: given from the start or by a restart, and whose secrets."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_runs import REPO, Started, python
from test_restarts import begun, landed, line, restart, training

from cockpit.engine import next_life, processes
from cockpit.engine.beginnings import Beginnings
from cockpit.engine.launch import INJECT
from cockpit.engine.next_environ import theirs
from cockpit.engine.rundir import new_rundir, safe_sockets
from cockpit.history.state import State
from cockpit.model.environment import AS_BEGAN
from cockpit.model.names import ENV_WAS
from cockpit.probe import lives


def environ(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the run takes its environment from here."""
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("TOKEN", "s3cret")


def test_what_a_setups_file_sets_is_there_from_the_start(shell, start) -> None:
    say = "import os; print(*map(os.environ.get, ('MINE', 'GONE', 'TOKEN')), os.environ['PYTHONPATH'].split(':')[-1])"
    run = start(python(say), variables={"MINE": "7", "GONE": None, "PYTHONPATH": "/more"})
    state = run.ended()
    assert run.run.output.read_text().split() == ["7", "None", "s3cret", "/more"]
    assert state.environment == {name: (AS_BEGAN, value) for name, value in run.run.facts()["environment"].items()}


def test_a_secret_of_the_shell_stands_in_no_file_and_comes_back_all_the_same(shell, start) -> None:
    run = begun(start, epochs=12, hold=2)
    more = f"{REPO}:/more"
    change = restart(run, TOKEN="mine", PYTHONPATH=more)
    landed(run, change)
    entry = line(run, change)
    assert entry["change"]["env TOKEN"] == [AS_BEGAN, "mine"] and entry["reason"] is None, entry
    assert entry["change"]["env PYTHONPATH"][1] == more, "our own folder in front of it is nobody's business"
    now = environ(run.training())
    assert now["TOKEN"] == "mine" and now["PYTHONPATH"].endswith(":/more")
    back = run.ask("undo")["result"]["id"]
    landed(run, back)
    assert environ(run.training())["TOKEN"] == "s3cret" and line(run, back)["reason"] is None
    assert run.status()["environment"] == {}
    run.ask("stop")
    run.ended()
    files = [path for path in run.run.data.rglob("*") if path.is_file()]
    assert len(files) > 5 and not [path for path in files if b"s3cret" in path.read_bytes()]


def test_where_a_title_stands_over_the_environment_the_keepers_and_what_was_asked_for_are_it(shell, start) -> None:
    """As ``setproctitle`` writes it: a second restart must not lose the first, nor an undo what the run began with."""
    run = begun(start, epochs=12, hold=1)
    more = f"{REPO}:/more"
    landed(run, restart(run, TOKEN="mine", PYTHONPATH=more))
    pids, known = processes.read_pids(run.run), {"TOKEN": (AS_BEGAN, "mine"), "PYTHONPATH": (str(REPO), more)}
    assert pids is not None
    whole = next_life.environ_of(run.run, pids, known)
    titled = next_life.environ_of(run.run, replace(pids, training=os.getpid()), known)  # one that bears no mark of it
    assert whole is not None and titled is not None and titled["GONE"] == "1"
    for found in (whole, titled):
        assert found["TOKEN"] == "mine" and found[ENV_WAS + "TOKEN"] == "s3cret"
    assert theirs("PYTHONPATH", titled["PYTHONPATH"], str(INJECT)) == more
    run.ask("stop")
    run.ended()


def crashed(start) -> Started:
    """Killed before TOKEN had settled, and tried again by itself."""
    run = start(training("--load-ms", 100, "--hold", 1, epochs=40), on_crash=True, crash_waits_s=(0.05,))
    run.until("steps are seen", lambda status: status["step"])
    change = restart(run, TOKEN="mine")
    landed(run, change)
    assert run.status()["environment"] == {"TOKEN": "mine"}
    killed = run.training()
    os.kill(killed, signal.SIGKILL)
    run.until("another goes on", lambda status: status["pid"] not in (None, killed) and status["state"] == "running")
    run.until("it has made a step", lambda status: status["ledger"][-1]["state"] in ("settling", "kept"))
    assert "taken back" in line(run, change)["reason"]
    return run


def test_a_change_that_a_crash_takes_back_is_no_longer_in_force(shell, start) -> None:
    """The next process has what the run began with, and nothing else is said or saved."""
    run = crashed(start)
    assert environ(run.training())["TOKEN"] == "s3cret" and run.status()["environment"] == {}
    run.ask("stop")
    run.ended()


@pytest.mark.long
def test_what_was_kept_since_then_stays_whoever_has_it_begin_again(shell, start) -> None:
    run = crashed(start)
    again = restart(run, TOKEN="other")
    landed(run, again)
    run.until("it is judged", lambda status: line(run, again)["outcome"] == "kept", 60)
    os.kill(run.training(), signal.SIGKILL)
    run.until("given up", lambda status: status["state"] == "ended")
    assert run.ask("restart", env={"MINE": "8"}, environ=dict(os.environ))["ok"]
    run.until("it runs", lambda status: status["state"] == "running")
    now = environ(run.training())
    assert (now["MINE"], now["TOKEN"]) == ("8", "other")
    run.ask("stop")
    run.ended()


def test_one_of_before_that_nobody_has_seen_has_left_its_own_environment(state_dir: Path) -> None:
    """What is tried after it must not begin with what has just failed."""
    run = new_rundir("it", None, state_dir / "runs", safe_sockets())
    folder = run.data / "life-2"
    folder.mkdir()
    asked, before = {"BAD": "1", "OLD": "2", "TOKEN": "mine"}, {"BAD": None, "OLD": "1", "TOKEN": AS_BEGAN}
    told = (("asked", asked), ("before", before))
    plan = {key: {f"env {name}": value for name, value in values.items()} for key, values in told}
    (folder / lives.PLAN).write_text(json.dumps(plan))
    assert lives.claim_go(str(folder), {lives.HANDOFF: "whole"})
    beginnings = Beginnings(run, SimpleNamespace(state=State()), time.time)  # type: ignore[arg-type]
    beginnings.environ = {**asked, ENV_WAS + "TOKEN": "s3cret", "MORE": "x"}
    for _ in range(2):
        beginnings.remember(processes.Pids(2**22 - 1, 2**22 - 2, back=9))
        assert beginnings.environ == {"OLD": "1", "TOKEN": "s3cret", "MORE": "x"}

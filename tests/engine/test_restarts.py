"""Hot restarts with real processes and no torch: lives, the way back, stops, and engines that are killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from engine_runs import Started, scripted, wait_for

from cockpit.engine import processes
from cockpit.engine.runs import look
from cockpit.engine.start import ensure_engine
from cockpit.history.state import State
from cockpit.model.environment import OTHER_HASHES
from cockpit.model.knobs import UNSET
from cockpit.probe import lives

STEPS = 60


def training(*options: object, epochs: int = 6) -> list[str]:
    return scripted("--session", "--epochs", epochs, "--steps", STEPS, "--speed", 4, *options)


def begun(start: Any, *options: object, epochs: int = 6, hold: int = 1) -> Started:
    """So many of its processes wait until they may hand over, however slow the machine is."""
    run: Started = start(training(*options, "--hold", hold, epochs=epochs))
    run.until("steps are seen", lambda status: status["step"])
    return run


def output(run: Started) -> str:
    return run.run.output.read_text()


def restart(run: Started, **env: str | None) -> str:
    answer = run.ask("restart", env=env)
    assert answer["ok"], answer
    assert answer["result"]["names"] == ["model"], answer
    # told to whoever asks in a shell, too
    assert os.environ.get("PYTHONHASHSEED") or OTHER_HASHES in answer["result"]["note"], answer
    return str(answer["result"]["id"])


def line(run: Started, change: str) -> dict[str, Any]:
    return next(entry for entry in run.status()["ledger"] if entry["id"] == change)


def landed(run: Started, change: str) -> None:
    run.until("it lands", lambda status: line(run, change)["state"] in ("settling", "kept"))


def environ(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def whole(run: Started, state: State, epochs: int = 6) -> None:
    """The training has made every step once, in whichever process."""
    assert (state.phase, state.exit_status, state.step) == ("ended", 0, STEPS * epochs), state
    steps = [int(text.split()[3]) for text in output(run).splitlines() if " loss " in text]
    assert steps == list(range(10, STEPS * epochs + 1, 10))


@pytest.mark.long
def test_goes_on_in_a_new_process_with_the_new_environment(start) -> None:
    run = begun(start)
    first = run.training()
    change = restart(run, MINE="7")
    told = run.until("it lands", lambda status: line(run, change)["state"] in ("settling", "kept") and status)
    entry = line(run, change)
    assert entry["change"] == {"env MINE": [None, "7"]} and entry["reason"] is None and entry["stall_ms"] > 0
    assert entry["at_step"] % STEPS == 0 and "ready" in entry["note"]
    second = run.training()
    assert second != first and told["pid"] == second and not processes.is_alive(first, None)
    assert (told["state"], told["probe"]) == ("running", "connected")
    assert b"MINE=7" in environ(second)
    assert (look(run.run).state, look(run.run).pid) == ("running", second)
    state = run.ended()
    whole(run, state)
    assert output(run).count("begins at") == 2 and state.pid == second
    assert [rank.pid for rank in state.team.ranks] == [second] if state.team else True
    assert processes.read_exit(run.run) == (0, None)


def test_a_process_that_fails_before_its_first_step_gives_way_to_the_environment_of_before(start) -> None:
    run = begun(start, "--fail-if", "BAD=9")
    change = restart(run, BAD="1")
    entry = run.until("it comes back", lambda status: line(run, change)["outcome"] and line(run, change))
    assert entry["outcome"] == "rolled_back" and "status 9 before its first step" in entry["reason"]
    state = run.ended()
    whole(run, state)
    assert output(run).count("begins at") == 2


@pytest.mark.long
@pytest.mark.parametrize("moment", ["asked", "ready", "go"])
def test_a_killed_engine_changes_nothing(start, moment: str) -> None:
    run = begun(start, epochs=40)
    change = restart(run, MINE="7")
    life = run.run.data / "life-2"
    files = {"asked": lives.PLAN, "ready": lives.READY, "go": lives.GO}
    wait_for((life / files[moment]).exists, moment)
    run.kill_engine()
    if moment == "go":
        wait_for(lambda: output(run).count("begins at") == 2, "the new process begins without an engine")
    assert look(run.run).state == "running"
    ensure_engine(run.run)
    entry = run.until(
        "it lands", lambda status: line(run, change)["state"] in ("settling", "kept") and line(run, change)
    )
    assert entry["change"] == {"env MINE": [None, "7"]}
    whole(run, run.ended(), 40)


@pytest.mark.long
def test_never_listed_as_ended_between_two_lives(start) -> None:
    run = begun(start)
    restart(run, MINE="7")
    seen = set()
    until = time.monotonic() + 60
    while output(run).count("begins at") < 2 and time.monotonic() < until:
        seen.add(look(run.run).state)
    seen.add(look(run.run).state)
    assert seen == {"running"}
    whole(run, run.ended())


@pytest.mark.long
def test_stopped_while_a_process_waits(start) -> None:
    run = begun(start, "--save-s", 0.3, epochs=500, hold=0)
    change = restart(run, MINE="7")
    life = run.run.data / "life-2"
    wait_for((life / lives.READY).exists, "it waits")
    assert run.ask("stop")["ok"]
    state = run.ended()
    assert state.exit_status == 143 and "saved" in output(run) and output(run).count("begins at") == 1
    (entry,) = [entry for entry in state.ledger if entry.id == change]
    assert (entry.state, entry.reason) == ("refused", "the run was stopped") and state.survivors == ()


@pytest.mark.long
def test_stopped_between_two_lives(start) -> None:
    run = begun(start, epochs=200)
    restart(run, MINE="7")
    wait_for((run.run.data / "life-2" / lives.GO).exists, "it hands over")
    assert run.ask("stop")["ok"]
    state = run.ended()
    assert state.exit_status == 143 and output(run).count("begins at") <= 2
    assert "back" not in lives.read(str(run.run.life), lives.PIDS) and look(run.run).state == "ended"


@pytest.mark.long
def test_called_off_and_asked_again(start) -> None:
    run = begun(start, epochs=8)
    restart(run, MINE="7")
    again = run.ask("restart", env={"MINE": "8"})
    assert not again["ok"] and "already under way" in again["error"]
    waiting = wait_for(lambda: lives.read(str(run.run.data / "life-2"), lives.PIDS).get("training"), "it waits")
    assert run.ask("drop")["ok"] and run.status()["ledger"] == []
    wait_for(lambda: not processes.is_alive(waiting, None), "the waiting process ends")
    change = restart(run, MINE="8")
    landed(run, change)
    assert run.run.life.name == "life-3"
    whole(run, run.ended(), 8)


def test_undo_takes_the_environment_back(start) -> None:
    run = begun(start, epochs=12, hold=2)
    change = restart(run, MINE="7")
    landed(run, change)
    undone = run.ask("undo")["result"]
    assert undone["asked"] == {"MINE": UNSET} and undone["what"] == "env MINE 7"
    back = undone["id"]
    landed(run, back)
    assert not any(pair.startswith(b"MINE=") for pair in environ(run.training()))
    assert line(run, change)["outcome"] == "reverted" and line(run, back)["change"]["env MINE"][0] == "7"
    whole(run, run.ended(), 12)


@pytest.mark.long
def test_settings_in_force_go_along(start) -> None:
    run = begun(start, epochs=8)
    assert run.ask("set", knobs={"num_workers": 2}, now=True)["ok"]
    run.until("workers", lambda status: status["knobs"]["num_workers"]["in_force"] == 2)
    change = restart(run, MINE="7")
    landed(run, change)
    run.until("workers", lambda status: status["knobs"]["num_workers"]["in_force"] == 2)
    assert json.loads((run.run.life / "start.json").read_text())["set"] == {"num_workers": 2}
    run.ended()


@pytest.mark.long
def test_a_process_that_cannot_begin_leaves_the_old_one_alone(start) -> None:
    run = begun(start, epochs=30, hold=0)
    change = restart(run, PYTHONHOME="/no/such/folder")
    entry = run.until("it is refused", lambda status: line(run, change)["outcome"] and line(run, change))
    assert entry["outcome"] == "refused" and "before its turn" in entry["reason"]
    whole(run, run.ended(), 30)
    assert output(run).count("begins at") == 1


@pytest.mark.long
def test_refused_with_the_reason(start) -> None:
    run = start(scripted("--epochs", 500))
    run.until("steps", lambda status: status["step"])
    for env, words in (
        ({"MINE": "7"}, "does not call cockpit.session"),
        ({"1": "7"}, "no name"),
        ({"COCKPIT_RUN": "x"}, "cockpit's own"),
    ):
        answer = run.ask("restart", env=env)
        assert not answer["ok"] and words in answer["error"], answer
    os.kill(run.training(), signal.SIGKILL)
    run.ended()


@pytest.mark.long
def test_a_keeper_killed_with_its_process_waiting(start) -> None:
    run = begun(start, epochs=30, hold=0)
    change = restart(run, MINE="7")
    pids = wait_for(lambda: lives.read(str(run.run.data / "life-2"), lives.PIDS), "its keeper")
    os.kill(pids["keeper"], signal.SIGKILL)
    entry = run.until("it is refused", lambda status: line(run, change)["outcome"] and line(run, change))
    assert entry["outcome"] == "refused" and "lost" in entry["reason"]
    whole(run, run.ended(), 30)
    wait_for(lambda: not processes.is_alive(pids["training"], None), "nothing waits any more")

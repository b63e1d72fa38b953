"""After a crash, with real processes and real kills and no torch: tried again by itself or not, and what is told."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_runs import REPO, Started, python, scripted, wait_for

from cockpit.engine import processes
from cockpit.engine.runs import look
from cockpit.engine.start import answers, ensure_engine
from cockpit.history.report import text_of
from cockpit.history.state import State
from cockpit.probe import lives

STEPS, EPOCHS = 20, 4
SOON = (0.05, 0.1, 0.15)


def training(*options: object, epochs: int = EPOCHS) -> list[str]:
    return scripted("--session", "--epochs", epochs, "--steps", STEPS, "--speed", 20, "--print-every", 5, *options)


def steps(run: Started) -> list[int]:
    """Of every line that the training printed, whichever process did."""
    lines = run.run.output.read_text().splitlines()
    return [int(line.split()[3]) for line in lines if " loss " in line]


def processes_begun(run: Started) -> int:
    return run.run.output.read_text().count("begins at")


def last(state: State) -> dict[str, Any]:
    (*_, entry) = [each for each in state.ledger if each.origin == "crash"]
    return {"state": entry.state, "note": entry.note, "reason": entry.reason, "asked": dict(entry.asked)}


def test_goes_on_from_the_newest_hand_off_and_tells_what_was_lost(start) -> None:
    run = start(training("--crash-at", 50, "--wandb", "a1b2"), on_crash=True, crash_waits_s=(1.0,))
    seen = run.until("it waits", lambda status: status["state"] == "starting" and status["crash"] and status)
    assert seen["crash"]["cause"] == "killed (SIGKILL)" and seen["crash"]["try"] == 1, seen["crash"]
    assert seen["crash"]["goes_on_from"] == "the hand-off after 2 epochs" and seen["crash"]["next_s"]
    assert look(run.run).state == "running", "it is not over, whatever its keeper wrote"
    state = run.ended()
    assert (state.phase, state.exit_status, state.step) == ("ended", 0, STEPS * EPOCHS)
    assert steps(run) == [*range(5, 50, 5), *range(45, STEPS * EPOCHS + 1, 5)], "from step 40 on, and not from 0"
    assert processes_begun(run) == 2 and state.crash is None and state.crashes[0].lost_steps in range(11)
    assert "begins at epoch 0 step 0 as nobody" in run.run.output.read_text()
    assert "begins at epoch 2 step 40 as a1b2" in run.run.output.read_text(), "it goes on under its name elsewhere, too"
    told = last(state)
    assert "killed (SIGKILL)" in told["note"] and "a few" in told["note"], told
    assert told["state"] in ("kept", "settling"), told
    assert "after a crash" in "\n".join(text_of(state, state.at_s))
    assert processes.read_exit(run.run) == (0, None)


@pytest.mark.long
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_the_process_of_before_that_runs_again_is_tried_again_too(start, how: str) -> None:
    """Whatever the one that failed in its place has left behind, nobody takes for its word."""
    words = ("--hold", 1, "--fail-if", "BAD=9", "--crash-at", 70, "--crash-times", 2, "--crash-by", how)
    run = start(training(*words), on_crash=True, crash_waits_s=SOON)
    run.until("hand-offs", lambda status: status["handoff"])
    assert run.ask("restart", env={"BAD": "1"})["ok"]
    state = run.ended()
    cause = {"raise": "RuntimeError: a bad batch", "kill": "killed (SIGKILL)"}[how]
    assert (state.exit_status, state.step) == (0, STEPS * EPOCHS) and [c.cause for c in state.crashes] == [cause]
    assert last(state)["note"].startswith(f"{cause}, at step"), last(state)
    assert [entry.state for entry in state.ledger if entry.origin == "person"] == ["rolled_back"]


@pytest.mark.long
def test_given_up_where_the_same_settings_come_no_further(start) -> None:
    run = start(training("--crash-at", 50, "--crash-times", 9), on_crash=True, crash_waits_s=SOON)
    state = run.ended()
    assert (state.phase, state.exit_status, processes_begun(run)) == ("ended", 137, 2)
    assert state.crash is not None and "twice under the same settings" in (state.crash.reason or "")
    assert state.crash.offered and "cockpit restart" in "\n".join(text_of(state, state.at_s))
    assert (run.run.life / lives.EXIT).read_text().split() == ["137"]


@pytest.mark.long
def test_settings_that_had_not_settled_are_taken_back(start) -> None:
    run = start(training("--crash-if", "num_workers=2", epochs=30), on_crash=True, crash_waits_s=SOON)
    run.until("hand-offs", lambda status: status["handoff"])
    change = run.ask("set", knobs={"num_workers": 2}, now=True)["result"]["id"]
    state = run.ended()
    assert (state.exit_status, processes_begun(run)) == (0, 2)
    (blamed,) = [entry for entry in state.ledger if entry.id == change]
    assert blamed.state == "ended" and "taken back" in (blamed.reason or "")
    assert "num_workers" not in json.loads((run.run.life / "start.json").read_text())["set"]
    assert "without num_workers" in last(state)["note"]


@pytest.mark.long
def test_they_are_for_a_person_who_asks_too(start) -> None:
    run = start(training("--crash-if", "num_workers=2", epochs=30), handoff_every=1)
    run.until("hand-offs", lambda status: status["handoff"])
    assert run.ask("set", knobs={"num_workers": 2}, now=True)["ok"]
    assert run.ended().exit_status == 137
    wait_for(lambda: not answers(run.run), "its engine leaves")
    ensure_engine(run.run, to_show=True)
    looked = run.ask("restart", env={}, only_look=True)["result"]["goes_on"]
    note = run.ask("restart", env={}, environ={**os.environ, "PYTHONPATH": str(REPO)})["result"]["note"]
    assert "without num_workers" in looked and "without num_workers" in note, "and it is said"
    wait_for(lambda: processes_begun(run) == 2, "it goes on")
    wait_for(lambda: look(run.run).state == "ended", "the end")
    assert processes.read_exit(run.run) == (0, None), "without what it had ended under"


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130),
        ("pass", 0),
    ],
    ids=["its own status", "told to end", "ctrl-c", "done"],
)
def test_who_ends_by_itself_or_is_told_to_is_not_tried_again(start, source: str, status: int) -> None:
    run = start(python(source), on_crash=True, crash_waits_s=SOON)
    state = run.ended()
    assert (state.phase, state.exit_status, state.crash, state.ledger) == ("ended", status, None, ())


@pytest.mark.long
def test_a_script_that_cannot_go_on_is_told_the_cost_and_is_not_begun_anew(start) -> None:
    run = start(scripted("--epochs", 40, "--steps", STEPS, "--speed", 20, "--crash-at", 400), on_crash=True)
    state = run.ended()
    assert state.exit_status == 137 and state.crash is not None and not state.crash.offered
    words = "\n".join(text_of(state, state.at_s))
    assert "does not call cockpit.session" in words and "steps" in words and "would be lost" in words
    ensure_engine(run.run, to_show=True)
    answer = run.ask("restart", env={}, environ=dict(os.environ))
    assert not answer["ok"] and "would be lost" in answer["error"]


@pytest.mark.long
def test_stopped_while_it_waits_and_called_off(start) -> None:
    for verb in ("stop", "drop"):
        run = start(training("--crash-at", 50), on_crash=True, crash_waits_s=(60.0,))
        run.until("it waits", lambda status: status["crash"])
        assert run.ask(verb)["ok"]
        state = run.ended()
        assert (state.exit_status, processes_begun(run)) == (137, 1)
        assert last(state)["state"] == "refused" and ("stopped" in last(state)["reason"]) == (verb == "stop")
        assert state.crash is not None and state.crash.offered


@pytest.mark.long
def test_handed_over_to_processes_that_all_fail_it_is_tried_again_and_offered(start) -> None:
    """Nobody has asked for tries: but it trained well until it was asked to hand over."""
    run = start(training("--hold", 1, "--fail-if", "COCKPIT_LIFE=9"), handoff_every=1, crash_waits_s=SOON)
    run.until("hand-offs", lambda status: status["handoff"])
    assert run.ask("restart", env={"MINE": "7"})["ok"]
    state = run.ended()
    assert (state.exit_status, processes_begun(run)) == (9, 1) and state.crash is not None and state.crash.offered
    assert [crash.cause for crash in state.crashes] == ["ended with status 9 before its first step"] * 2
    assert state.crash.reason is not None and "twice under the same settings" in state.crash.reason
    assert [entry.state for entry in state.ledger] == ["ended", "ended"], state.ledger
    told = state.ledger[0].reason or ""
    assert "so did the one that began as it was before (status 9)" in told and "goes on from the hand-off" not in told
    assert told.endswith(" is left"), "what goes on from it is said where the crash is, and that it is tried again"


@pytest.mark.long
def test_an_engine_lost_while_it_waits_gives_up_and_says_so(start) -> None:
    run = start(training("--crash-at", 50), on_crash=True, crash_waits_s=(60.0,))
    run.until("it waits", lambda status: status["crash"])
    run.kill_engine()
    assert look(run.run).state == "ended"
    ensure_engine(run.run, to_show=True)
    state = run.ended()
    assert state.exit_status == 137 and "engine was lost" in (state.crash.reason if state.crash else "")
    assert last(state)["state"] == "refused"


def test_a_person_restarts_what_has_ended(start) -> None:
    run = start(training("--crash-at", 50), handoff_every=1)
    state = run.ended()
    assert (state.exit_status, state.phase) == (137, "ended") and state.crash is not None and state.crash.offered
    wait_for(lambda: not answers(run.run), "its engine leaves")
    ensure_engine(run.run, to_show=True)
    environ = {**os.environ, "PYTHONPATH": str(REPO)}
    looked = run.ask("restart", env={"MINE": "7"}, environ=environ, only_look=True)["result"]
    assert looked["reason"] is None and looked["goes_on"].startswith("goes on from the hand-off after 2 epochs"), looked
    answer = run.ask("restart", env={"MINE": "7"}, environ=environ)
    assert answer["ok"] and "the shell that asked" in answer["result"]["note"], answer
    change = answer["result"]["id"]
    seen = run.until("it runs", lambda status: status["state"] == "running" and status)
    assert seen["exit_status"] is None and seen["crash"] is None
    environment = Path(f"/proc/{run.training()}/environ").read_bytes().split(b"\0")
    assert b"MINE=7" in environment and look(run.run).state == "running"
    wait_for(lambda: look(run.run).state == "ended", "the end")
    state = run.ended()
    assert state.exit_status == 0 and state.step == STEPS * EPOCHS
    (entry,) = [each for each in state.ledger if each.id == change]
    assert entry.change == {"env MINE": (None, "7")} and "hand-off after 2 epochs" in (entry.note or "")
    assert steps(run) == [*range(5, 50, 5), *range(45, STEPS * EPOCHS + 1, 5)]

    def asked(**more: Any) -> Any:
        ensure_engine(run.run, to_show=True)  # of a run that has ended it stays for a moment only
        try:
            return run.ask("restart", env={}, **more)
        except (OSError, AssertionError):  # it has just left
            return None

    again = wait_for(lambda: asked(environ=environ), "an answer")
    assert not again["ok"] and "status 0" in again["error"]
    assert wait_for(lambda: asked(only_look=True), "an answer")["result"]["reason"] == again["error"]


@pytest.mark.long
def test_a_person_does_not_wait(start) -> None:
    run = start(training("--crash-at", 50), on_crash=True, crash_waits_s=(60.0,))
    run.until("it waits", lambda status: status["crash"])
    assert run.ask("restart", env={}, environ=dict(os.environ))["ok"]
    state = run.ended()
    assert (state.exit_status, processes_begun(run)) == (0, 2)


def resumes(*options: object) -> list[str]:
    return scripted("--epochs", EPOCHS, "--steps", STEPS, "--speed", 20, "--save-every", 15, *options)


def test_a_script_that_resumes_by_itself_goes_on_from_its_newest_checkpoint(start, tmp_path: Path) -> None:
    more = {"on_crash": True, "crash_waits_s": SOON, "resume_with": "--resume {checkpoint}"}
    run = start(resumes("--crash-at", 50), checkpoints="ckpt/*.pt", **more)
    state = run.ended()
    assert state.exit_status == 0 and "ckpt/45.pt" in last(state)["note"]
    assert "resumes at epoch 2 step 45" in run.run.output.read_text()
    assert state.crashes[0].lost_s is not None and state.crashes[0].lost_steps is None


@pytest.mark.long
def test_it_is_restarted_for_an_environment_once_it_has_saved(start, tmp_path: Path) -> None:
    command = scripted("--epochs", 99_999, "--steps", STEPS, "--speed", 20, "--save-every", 60, "--save-s", 0.1)
    run = start(command, resume_with="--resume {checkpoint}", checkpoints="ckpt/*.pt")
    run.until("steps", lambda status: status["step"])
    looked = run.ask("restart", env={"MINE": "7"}, only_look=True)["result"]
    assert looked["reason"] is None and "next checkpoint (ckpt/*.pt)" in looked["goes_on"], looked
    assert run.status()["ledger"] == [], "looking asks for nothing"
    answer = run.ask("restart", env={"MINE": "7"})
    assert answer["ok"] and "next checkpoint" in answer["result"]["note"], answer
    change = answer["result"]["id"]
    landed = {"settling", "kept"}
    run.until("it lands", lambda status: landed & {e["state"] for e in status["ledger"] if e["id"] == change})
    assert b"MINE=7" in Path(f"/proc/{run.training()}/environ").read_bytes().split(b"\0")
    assert "resumes at epoch" in run.run.output.read_text() and "saved" in run.run.output.read_text()
    (entry,) = run.status()["ledger"]
    assert entry["change"] == {"env MINE": [None, "7"]} and entry["reason"] is None, entry
    os.kill(run.training(), signal.SIGKILL)
    state = run.ended()
    assert state.crash is not None and state.crash.offered


def test_what_could_not_work_is_refused_before_the_start(start) -> None:
    with pytest.raises(Exception, match="behind sh -c"):
        start(["sh", "-c", "true"], resume_with="--resume {checkpoint}")
    with pytest.raises(Exception, match=r"not \{ckpt\}"):
        start(python("pass"), resume_with="--resume {ckpt}")


@pytest.mark.long
def test_killed_while_a_process_waits_to_take_over(start) -> None:
    run = start(training("--hold", 1, epochs=400), on_crash=True, crash_waits_s=SOON)
    run.until("hand-offs", lambda status: status["handoff"])
    change = run.ask("restart", env={"MINE": "7"})["result"]["id"]
    wait_for((run.run.data / "life-2" / lives.PIDS).exists, "it is prepared")
    waiting = lives.read(str(run.run.data / "life-2"), lives.PIDS)["training"]
    first = run.training()
    os.kill(first, signal.SIGKILL)
    run.until("another", lambda told: told["state"] == "running" and told["pid"] not in (None, first, waiting))
    assert run.run.life.name == "life-3"
    (entry,) = [each for each in run.status()["ledger"] if each["id"] == change]
    assert entry["outcome"] == "refused" and "crashed before it could hand over" in entry["reason"], entry
    wait_for(lambda: not processes.is_alive(waiting, None), "nobody waits any more")
    run.until("its probe", lambda told: told["probe"] == "connected")
    again = run.ask("restart", env={"MINE": "8"})
    assert again["ok"], again
    assert run.ask("stop")["ok"]
    run.ended()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment_it_makes_every_step_and_never_two_at_once(start, seed: int) -> None:
    chance, epochs = random.Random(seed), 30
    run = start(training("--print-every", 1, epochs=epochs), on_crash=True, crash_waits_s=SOON)
    killed = 0
    while look(run.run).state == "running" and killed < 3:
        time.sleep(chance.uniform(0.0, 1.5))
        pids = processes.read_pids(run.run)
        if pids is not None and processes.is_alive(pids.training, pids.training_started):
            os.kill(pids.training, signal.SIGKILL)
            killed += 1
    state = run.ended(300.0)
    spans: list[list[int]] = []
    for line in run.run.output.read_text().splitlines():
        if line.startswith("begins at"):
            spans.append([int(line.split()[5])])
        elif " loss " in line:
            spans[-1].append(int(line.split()[3]))
    for span in spans:
        assert span == list(range(span[0], span[0] + len(span))), "each process goes on from where it says, alone"
    assert [span[0] % STEPS for span in spans] == [0] * len(spans)
    if state.exit_status == 0:
        assert spans[-1][-1] == STEPS * epochs and state.step == STEPS * epochs
    elif state.crash is None:  # it was through already
        assert state.exit_status == 137 and spans[-1][-1] == STEPS * epochs
    else:
        assert state.exit_status == 137
        early = "before its first step" in (state.crash.reason or "") and state.step is None
        through = "had ended" in (state.crash.reason or "")  # killed behind its last hand-off
        assert early or through or "given up" in (state.crash.reason or "")
    for crash, (before, after) in zip(state.crashes, pairwise(spans), strict=False):
        if crash.lost_steps is not None and crash.next_s is not None:
            assert crash.lost_steps <= before[-1] - after[0] + 1, (crash, before[-1], after[0])

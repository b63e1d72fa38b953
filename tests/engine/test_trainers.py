"""What was started is gone, and somebody of the run still trains: no second training begins beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_runs import REPO, Started, scripted, wait_for

from cockpit.engine import processes, trainers
from cockpit.engine.rundir import RunDir, new_rundir, safe_sockets
from cockpit.engine.start import answers, ensure_engine
from cockpit.history.report import text_of
from cockpit.model.names import ENV_LIFE, ENV_RUN
from cockpit.probe import lives

NOTE = """
import mmap, sys, time
from cockpit.probe import lives
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        loaded = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
if sys.argv[1]:
    lives.note_training(sys.argv[1])
print("there", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(state_dir: Path) -> RunDir:
    return new_rundir("it", None, state_dir / "runs", safe_sockets())


@pytest.fixture
def process(run: RunDir, tmp_path: Path) -> Iterator[Callable[..., int]]:
    """One of the run, in the life of this folder: with torch loaded, having trained, or neither."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(life: Path, torch: bool = False, trains: bool = False) -> int:
        library = tmp_path / "libtorch_cpu.so"
        library.write_bytes(b"x")
        later = {} if life == run.data else {ENV_LIFE: str(life)}
        env = {**os.environ, "PYTHONPATH": str(REPO), ENV_RUN: str(run.data), **later}
        words = [str(life) if trains else "", *([str(library)] if torch else [])]
        started = subprocess.Popen([sys.executable, "-c", NOTE, *words], env=env, stdout=subprocess.PIPE)
        begun.append(started)
        assert started.stdout is not None and started.stdout.readline() == b"there\n"
        return started.pid

    yield begin
    for each in begun:
        each.kill()
        each.communicate()


def life_of(run: RunDir, number: int) -> Path:
    folder = run.data / f"life-{number}"
    (folder / "back").mkdir(parents=True)
    assert lives.claim_go(str(folder), {lives.HANDOFF: "whole"})
    return folder


def who(run: RunDir, *workers: int) -> tuple[int, bool] | None:
    found = trainers.who_trains(run, (), workers)
    return None if found is None else (found.pid, found.steps)


def test_whoever_has_made_a_step_is_found_in_whichever_life_and_nobody_who_is_gone(run, process) -> None:
    assert who(run) is None
    first = process(run.data, trains=True)
    assert who(run) == (first, True)
    life = life_of(run, 2)
    assert who(run) == (first, True), "of an older life, beside the present one"
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: who(run) is None, "it is gone")
    assert who(run) is None
    (life / (lives.TRAINED + str(os.getpid()))).write_text("1")
    assert who(run) is None, "a later process with the same pid"
    back = process(life / "back", trains=True)
    assert who(run) == (back, True)


def test_who_may_be_about_to_train_counts_until_somebody_of_the_same_life_has(run, process, monkeypatch) -> None:
    young = process(run.data)
    assert who(run) == (young, False), "a Python that has only just begun may still import torch"
    monkeypatch.setattr(trainers, "YOUNG_S", 0.0)
    assert who(run) is None, "an uploader, a board"
    has_torch = process(run.data, torch=True)
    assert who(run) == (has_torch, False) and who(run, has_torch) is None, "but for loader workers"
    process(life_of(run, 2), torch=True)
    found = who(run)
    assert found is not None and found[0] not in (young, has_torch), "whoever is left of an older life will not begin"
    os.kill(process(run.life, trains=True), signal.SIGKILL)
    wait_for(lambda: who(run) is None, "some have trained: who has not is a helper that they have left")


def goes_on_alone(start, **more: Any) -> tuple[Started, int]:
    """A shell that is killed, and the training that it ran."""
    words = scripted("--session", "--epochs", 4000, "--steps", 20, "--speed", 20)
    run: Started = start(["sh", "-c", '"$@"; true', "sh", *words], handoff_every=1, **more)
    run.until("hand-offs", lambda status: status["handoff"])
    (inner,) = [pid for pid, _ in lives.trained(str(run.run.data))]
    os.kill(run.training(), signal.SIGKILL)
    return run, inner


def begun(run: Started) -> int:
    return run.run.output.read_text().count("begins at")


def test_a_person_is_told_who_trains_by_an_engine_that_has_heard_nobody(start) -> None:
    run, inner = goes_on_alone(start)
    state = run.ended()
    told = "\n".join(text_of(state, state.at_s))
    assert state.exit_status == 137 and f"process {inner} " in told and "cockpit restart" not in told, told
    wait_for(lambda: not answers(run.run), "its engine leaves")
    ensure_engine(run.run, to_show=True)
    watching = run.client()  # so that it stays
    watching.say(m="watch")
    answer = run.ask("restart", env={}, environ=dict(os.environ))
    assert not answer["ok"] and f"process {inner} " in answer["error"] and f"kill {inner}" in answer["error"], answer
    assert run.ask("restart", env={}, only_look=True)["result"]["reason"] == answer["error"]
    assert begun(run) == 1 and processes.is_alive(inner, None)
    os.kill(inner, signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(inner, None), "it is gone")
    environ = {**os.environ, "PYTHONPATH": str(REPO)}
    assert run.ask("restart", env={}, environ=environ)["ok"]
    wait_for(lambda: begun(run) == 2, "then it goes on")
    assert run.ask("stop", force=True)["ok"]
    watching.close()


@pytest.mark.long
def test_a_try_waits_for_whoever_trains_and_not_for_ever(start) -> None:
    run, inner = goes_on_alone(start, on_crash=True, crash_waits_s=(0.05,))
    run.until("it is seen", lambda status: status["crash"])
    time.sleep(3.0)
    assert begun(run) == 1, "nobody begins beside it"
    os.kill(inner, signal.SIGKILL)
    wait_for(lambda: begun(run) == 2, "the try")
    epoch = run.run.output.read_text().rpartition("begins at epoch ")[2].split()[0]
    assert run.ask("stop", force=True)["ok"]
    (tried,) = [entry for entry in run.ended().ledger if entry.origin == "crash"]
    assert f"the hand-off after {epoch} epochs" in (tried.note or ""), "from where the other had come to meanwhile"
    run, inner = goes_on_alone(start, on_crash=True, crash_waits_s=(0.05,))
    state = run.ended(trainers.YOUNG_S + 60.0)
    assert state.crash is not None and f"process {inner} " in (state.crash.reason or "") and begun(run) == 1
    assert any(str(inner) in each for each in state.survivors), state.survivors
    os.kill(inner, signal.SIGKILL)

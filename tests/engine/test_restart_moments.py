"""A hot restart that is met by a stop, or loses its engine, at any moment: nothing is lost, twice, or left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest
from engine_runs import Started, scripted, wait_for

from cockpit.engine import processes
from cockpit.engine.rundir import write_json
from cockpit.engine.start import ensure_engine
from cockpit.model.names import ENV_RUN
from cockpit.probe import lives

STEPS, EPOCHS = 60, 60
pytestmark = pytest.mark.long


def begun(start, *options: object) -> Started:
    words = scripted("--session", "--epochs", EPOCHS, "--steps", STEPS, "--speed", 4, *options)
    run: Started = start(words)
    run.until("steps are seen", lambda status: status["step"])
    return run


@pytest.mark.parametrize("seed", range(12))
def test_engines_killed(start, seed: int) -> None:
    chance = random.Random(seed)
    fails = seed % 3 == 0
    run = begun(start, "--fail-if", "BAD=9")
    answer = run.ask("restart", env={"BAD" if fails else "MINE": "1"})
    assert answer["ok"], answer
    change = answer["result"]["id"]
    for _ in range(chance.randint(1, 4)):
        time.sleep(chance.uniform(0, 1.5))
        if processes.read_exit(run.run) is not None:
            break
        run.kill_engine()
        time.sleep(chance.choice((0.0, chance.uniform(0, 2))))
        ensure_engine(run.run)
    state = run.ended(180)
    text = run.run.output.read_text()
    assert (state.phase, state.exit_status, state.step) == ("ended", 0, STEPS * EPOCHS), (state, text[-500:])
    steps = [int(line.split()[3]) for line in text.splitlines() if " loss " in line]
    assert steps == list(range(10, STEPS * EPOCHS + 1, 10))
    (entry,) = [entry for entry in state.ledger if entry.id == change]
    lost = entry.state == "refused" and "engine was lost" in (entry.reason or "")
    assert lost or (entry.state == "rolled_back") is fails, entry
    assert text.count("begins at") == (1 if lost else 2)


@pytest.mark.parametrize("seed", range(16))
def test_stopped(start, seed: int) -> None:
    chance = random.Random(seed)
    fails = seed % 2 == 0
    run = begun(start, "--fail-if", "BAD=9", *(("--save-s", 0.3) if seed % 3 else ()))
    assert run.ask("restart", env={"BAD" if fails else "MINE": "1"})["ok"]
    time.sleep(chance.uniform(0, 4))
    assert run.ask("stop")["ok"]
    asked_s = time.monotonic()
    state = run.ended(60)
    assert time.monotonic() - asked_s < 20, "nobody of it waits for the end of the grace"
    assert state.phase == "ended" and state.exit_status in ((143, 9) if fails else (143,)), state
    assert state.survivors == () and processes.marked(run.run) == ()


def test_a_process_that_begins_in_the_moment_of_the_stop_is_told(start) -> None:
    """As a keeper may start it that had looked right before."""
    run = begun(start, "--save-s", 15)
    folder = run.run.data / "life-2"
    assert run.ask("stop")["ok"]
    late = subprocess.Popen(["sleep", "600"], env={**os.environ, ENV_RUN: str(run.run.data)})
    try:
        folder.mkdir()
        write_json(folder / lives.PIDS, {"keeper": late.pid, "training": late.pid})
        assert lives.claim_go(str(folder), {lives.HANDOFF: "whole"})
        assert wait_for(lambda: late.poll() is not None and late, "it is told", 10).returncode == -signal.SIGTERM
    finally:
        late.kill()
        late.wait()
        run.ask("stop", force=True)

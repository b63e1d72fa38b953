"""Pausing a run and letting it go on: real engines and processes, a scripted training; no torch."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from engine_runs import Started, python, scripted
from support.outcome import REPO
from support.under import ask, detached, peek, wait_until

from cockpit.engine.start import ensure_engine

ENDLESS = scripted("--epochs", 100000, "--steps", 100, "--speed", "4")


def stands_still(run: Started) -> bool:
    seen = [run.status() for _ in range(20)]
    steps = {(told["state"], told["step"]) for told in seen}
    assert steps == {("paused", seen[0]["pause"]["at_step"])}, steps
    return True


def test_paused_by_one_engine_and_let_go_by_the_next(start) -> None:
    run: Started = start(ENDLESS)
    early = run.ask("pause")
    assert early["ok"] or "no training step has ended" in early["error"]
    run.until("it trains", lambda told: told["step"])
    assert early["ok"] or run.ask("pause")["ok"]
    told = run.until("it is paused", lambda told: told["state"] == "paused" and told)
    assert told["pause"]["state"] == "paused" and told["samples_per_s"] is None and told["activity"] is None
    assert not run.ask("pause")["ok"]
    assert run.ask("set", knobs={"num_workers": 2}, now=True)["ok"]
    run.kill_engine()
    assert ensure_engine(run.run)
    run.until("it is heard again", lambda told: told["probe"] == "connected")
    assert stands_still(run)
    assert run.status()["ledger"][0]["state"] == "queued", "nothing lands while it is paused"
    assert run.ask("resume")["ok"]
    told = run.until("it goes on", lambda told: told["state"] == "running" and told["ledger"][0]["outcome"] and told)
    assert told["knobs"]["num_workers"]["in_force"] == 2 and told["paused_s"] > 0
    assert not run.ask("resume")["ok"]
    run.ask("stop", force=True)


@pytest.mark.long
def test_let_go_while_no_engine_hears_it(start) -> None:
    """The new engine is asked before the training has found it: it is told as it comes back."""
    run: Started = start(ENDLESS)
    run.until("it trains", lambda told: told["step"])
    run.ask("pause")
    run.until("it is paused", lambda told: told["state"] == "paused")
    os.kill(run.training(), signal.SIGSTOP)
    try:
        run.kill_engine()
        assert ensure_engine(run.run)
        assert run.ask("resume")["ok"] and run.status()["state"] == "paused"
    finally:
        os.kill(run.training(), signal.SIGCONT)
    run.until("it goes on", lambda told: told["state"] == "running")
    run.ask("stop", force=True)


NOTES = """
import signal, sys
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
from cockpit.engine import scripted
class Trainer(scripted.Trainer):
    def _one_step(self):
        took = super()._one_step()
        if asked:
            print("saved", flush=True); sys.exit(9)
        return took
Trainer(scripted.options(["--epochs", "100000", "--speed", "4"])).run()
"""


@pytest.mark.long
def test_a_stop_lets_it_go_on_first_so_that_its_handler_is_heard(start) -> None:
    run: Started = start(python(NOTES))
    run.until("it trains", lambda told: told["step"])
    assert run.ask("pause")["ok"]
    run.until("it is paused", lambda told: told["state"] == "paused")
    assert run.ask("stop")["ok"]
    state = run.ended()
    assert state.exit_status == 9 and run.run.output.read_text().endswith("saved\n")
    assert state.pause is not None and state.pause.state == "over" and state.paused_s > 0


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, "-m", "cockpit.engine.scripted", "--epochs", "100000", "--steps", "100", "--speed", "4"]


@pytest.mark.long
def test_from_a_shell(state_dir: Path, command: list[str]) -> None:
    with detached(command, state_dir, env={"PYTHONPATH": str(REPO)}):
        wait_until(lambda: peek(state_dir)["step"], "a step")
        paused = ask(state_dir, "pause", "--wait")
        assert paused.returncode == 0 and paused.stdout.startswith("it: paused after "), paused.stderr
        (row,) = json.loads(ask(state_dir, "ls", "--json").stdout)
        assert row["state"] == "paused" and row["samples_per_s"] is None
        page = ask(state_dir, "status").stdout
        assert "it  paused for " in page and "cockpit resume it" in page
        assert "paused for" in ask(state_dir, "report").stdout
        asked = ask(state_dir, "set", "num_workers=2", "--now")
        assert asked.returncode == 0 and "it is paused: this lands when it goes on" in asked.stderr
        again = ask(state_dir, "pause")
        assert again.returncode == 1 and "paused already" in again.stderr
        on = ask(state_dir, "resume", "--json")
        told = json.loads(on.stdout)
        assert on.returncode == 0 and told["state"] == "running" and told["pause"]["state"] == "over"
        assert "is not paused" in ask(state_dir, "resume").stderr
        wait_until(lambda: peek(state_dir)["knobs"]["num_workers"]["in_force"] == 2, "the change")
        assert ask(state_dir, "stop", "--force").returncode == 0
    gone = ask(state_dir, "pause")
    assert gone.returncode == 1 and "has ended" in gone.stderr and gone.stderr.count("\n") == 1
    report = json.loads(ask(state_dir, "report", "--json").stdout)
    assert report["paused_s"] > 0 and report["pause"]["state"] == "over"

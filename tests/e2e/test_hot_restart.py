"""Hot restarts of a real training through the command line: not one loss differs, and what fails comes back."""

from __future__ import annotations

import json
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of, run_bare
from support.outcome import REPO, TRAINERS, Outcome
from support.under import ask, detached, peek, run_under, status, wait_until

SCRIPT = TRAINERS / "restarted.py"
RELATIVE = [sys.executable, str(SCRIPT.relative_to(REPO)), "a", "--b"]
PAUSE = {"PAUSE_S": "0.02", "EPOCHS": "36", "PYTHONPATH": str(REPO)}
"""The last: the script's own cockpit is this one, whatever is installed."""


SHELL = 'echo SHELL $(ls "$COCKPIT_LIFE/go" 2>&- | wc -l); exec "$0" "$@"'
LAUNCHER = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


def begun(scratch: Path) -> None:
    wait_until((scratch / "runs" / "it" / "pids.json").exists, "the start", 120, 0.05)
    wait_until(lambda: peek(scratch)["step"], "steps", 120)


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if " loss " in line or line.startswith("FINAL ")]


def begins(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("BEGINS ")]


def bare(tmp_path: Path, command: list[str], env: dict[str, str]) -> Outcome:
    folder = tmp_path / "bare"
    folder.mkdir()
    return run_bare(command, folder, {**env, "PAUSE_S": "0"})


def restart(scratch: Path, *words: str) -> dict[str, Any]:
    """One that is waited for: its line of the ledger, and the status that it ended with."""
    waited = ask(scratch, "restart", "--wait", *words, timeout_s=280)
    assert waited.stdout, waited.stderr
    return {"status": waited.returncode, "talk": waited.stderr, **json.loads(waited.stdout)}


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_loss_is_that_of_one_process(state_dir: Path, tmp_path: Path, fails: bool) -> None:
    """A restart, or one that fails and then one that does not; one ``cockpit run`` watches all of it to the end."""
    env = {**PAUSE, "LIVES": "3" if fails else "2", "WORKERS": "2", "STATUS": "3", "EPOCHS": "36" if fails else "24"}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_under, RELATIVE, state_dir, (), env, 600)
        begun(state_dir)
        if fails:
            failed = restart(state_dir, "--env", "FAIL=1")
            assert (failed["outcome"], failed["status"]) == ("rolled_back", 1), failed
            assert "status 9 before its first step" in failed["reason"]
            life = state_dir / "runs" / "it" / "life-2"
            wait_until((life / "back" / "stepped").exists, "the environment of before trains again", 120, 0.05)
        entry = restart(state_dir, "--env", "MINE=7")
        ours = running.result()
    assert entry["change"] == {"env MINE": [None, "7"]} and entry["reason"] is None, entry
    assert entry["at_step"] % 6 == 0 and entry["stall_ms"] > 0
    # its note is by now about the end of the process before, if that took long
    ready = json.loads((state_dir / "runs" / "it" / f"life-{env['LIVES']}" / "ready.json").read_text())
    assert ready["torch"] is True and ready["why"] == [] and ready["private_dirty_kb"] > 0
    theirs = bare(tmp_path, RELATIVE, env)
    assert losses(ours.text) == losses(theirs.text) and len(losses(ours.text)) == 6 * int(env["EPOCHS"]) + 1
    assert begins(ours.text) == begins(theirs.text) * (4 if fails else 2)
    assert ours.status == theirs.status == 3 and ours.report is not None
    assert (ours.report["exit_status"], ours.report["step"]) == (3, 6 * int(env["EPOCHS"])) and ours.talk.count(
        "ended"
    ) <= 1, ours.talk


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "env"),
    [
        pytest.param((), {"WORKERS": "0"}, id="alone"),
        pytest.param(("num_workers=2", "--now"), {"WORKERS": "0"}, id="workers-now"),
        pytest.param(("num_workers=1",), {"WORKERS": "0"}, id="workers-at-the-boundary"),
        pytest.param(("num_workers=0", "--now"), {"WORKERS": "2"}, id="no-workers"),
        pytest.param((), {"WORKERS": "2", "METHOD": "spawn", "EPOCHS": "5"}, id="spawned"),
        pytest.param((), {"PINNED": "1"}, id="pinned"),
        pytest.param((), {"BEHIND": f"sh -c '{SHELL}'"}, id="behind-a-shell"),
        pytest.param((), {"BEHIND": f"{sys.executable} -c '{LAUNCHER}'"}, id="behind-a-launcher"),
    ],
)
def test_whatever_is_in_force(state_dir: Path, tmp_path: Path, words: tuple[str, ...], env: dict[str, str]) -> None:
    """Restarted with what the script has, and with what was set before it; then taken back by another restart."""
    env = {**PAUSE, "LIVES": "2", **env}
    command = [*shlex.split(env.get("BEHIND", "")), *command_of(SCRIPT)]
    with detached(command, state_dir, env=env) as data:
        begun(state_dir)
        if words:
            assert ask(state_dir, "set", *words).returncode == 0
        assert ask(state_dir, "restart", "--env", "MINE=7").returncode == 0
        wait_until((data / "life-2" / "exit_status").exists, "the end", 280)
        text = (data / "output.log").read_text()
    assert (data / "life-2" / "exit_status").read_text().strip() == "0", text[-2000:]
    theirs = bare(tmp_path, command, env)
    assert losses(text) == losses(theirs.text)
    assert begins(text) == begins(theirs.text) * 2
    if "SHELL" in theirs.text:  # what a shell does before is done once for each process, when it is its turn
        assert re.findall("^SHELL.*", text, re.MULTILINE) == ["SHELL 0", "SHELL 1"]
    if words:  # it has landed before the restart, or goes along with it and lands in the new process
        knob, value = words[0].split("=")
        (loader,) = [loader for loader in status(state_dir)["loaders"] if loader["role"] == "train"]
        assert loader["knobs"][knob] == int(value)


@pytest.mark.long
def test_refused_where_it_would_begin_anew(state_dir: Path) -> None:
    with detached(command_of(TRAINERS / "forever.py"), state_dir, env={"PAUSE_S": "0.02", "EPOCHS": "10000"}):
        begun(state_dir)
        refused = ask(state_dir, "restart", "--env", "MINE=7")
        assert refused.returncode == 1 and "does not call cockpit.session" in refused.stderr
        assert "steps" in refused.stderr and "would be lost" in refused.stderr
        wrong = ask(state_dir, "restart", "--env", "MINE")
        assert wrong.returncode == 2 and "NAME=VALUE" in wrong.stderr

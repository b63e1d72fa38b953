"""The story without a screen: start, set and wait, save, and run the same script with what was saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bare import command_of, run_bare
from support.outcome import TRAINERS, difference
from support.under import ask, detached, peek, run_under, wait_until

SLOW = {"PAUSE_S": "0.002", "SAMPLES": "400", "EPOCHS": "100000"}


def test_set_wait_save_and_run_again(state_dir: Path) -> None:
    until, saved = state_dir / "enough", state_dir / "tuned.toml"
    env = {**SLOW, "UNTIL": str(until)}
    with detached(command_of(TRAINERS / "slow.py"), state_dir, env=env):
        wait_until(lambda: peek(state_dir)["baseline_samples_per_s"], "a baseline", 120)
        landed = ask(state_dir, "set", "it", "num_workers=2", "prefetch_factor=3", "--now", "--wait", timeout_s=120)
        assert landed.returncode == 0, landed.stderr
        entry = json.loads(landed.stdout)
        assert (entry["outcome"], entry["change"]["num_workers"]) == ("kept", [0, 2])
        refused = ask(state_dir, "set", "it", "pin_memory=on", "--wait", timeout_s=60)
        assert refused.returncode == 1
        assert "no accelerator" in refused.stdout + refused.stderr
        written = ask(state_dir, "save", "it", "--to", str(saved))
        assert written.returncode == 0, written.stderr
        until.touch()
        wait_until(lambda: peek(state_dir)["state"] == "ended", "the end")
    told = ask(state_dir, "report", "it")
    assert told.returncode == 0, told.stderr
    assert "num_workers 0→2" in told.stdout
    again, scratch = state_dir / "again", state_dir / "scratch"
    again.mkdir()
    scratch.mkdir()
    command = command_of(TRAINERS / "plain.py")
    under = run_under(command, again, ("--config", str(saved)))
    bare = run_bare(command, scratch)
    assert under.output == bare.output, difference(under, bare)
    assert under.report is not None
    knobs = under.report["loaders"][0]["knobs"]
    assert (knobs["num_workers"], knobs["prefetch_factor"]) == (2, 3)


@pytest.mark.long
def test_set_from_the_start_reaches_only_what_trains(state_dir: Path) -> None:
    """A bare ``--set`` means every loader whose role is not known; a validation loader gets its own settings back."""
    scratch = state_dir / "scratch"
    scratch.mkdir()
    command = command_of(TRAINERS / "validation.py")
    under = run_under(command, state_dir, ("--set", "num_workers=2"))
    bare = run_bare(command, scratch)
    assert under.output == bare.output, difference(under, bare)
    assert under.report is not None
    by_role = {loader["role"]: loader["knobs"]["num_workers"] for loader in under.report["loaders"]}
    assert by_role == {"train": 2, "other": 0}


@pytest.mark.long
def test_one_loader_by_its_name(state_dir: Path) -> None:
    """``train.py:52:num_workers=2`` means that loader alone, a validation loader too."""
    scratch = state_dir / "scratch"
    scratch.mkdir()
    script = TRAINERS / "validation.py"
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "val_loader = DataLoader(" in text)
    command = command_of(script)
    under = run_under(command, state_dir, ("--set", f"validation.py:{line}:num_workers=1"))
    bare = run_bare(command, scratch)
    assert under.output == bare.output, difference(under, bare)
    assert under.report is not None
    by_role = {loader["role"]: loader["knobs"]["num_workers"] for loader in under.report["loaders"]}
    assert by_role == {"train": 0, "other": 1}

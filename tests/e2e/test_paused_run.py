"""A real training paused from a shell, asked for a change meanwhile, and let go on: as if nothing had been."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.bare import command_of, run_bare
from support.under import ask, detached, status, wait_until

ENV = {"EPOCHS": "4", "SAMPLES": "400", "PAUSE_S": "0.004"}


@pytest.mark.long
def test_paused_changed_and_let_go_on(trainers: Path, state_dir: Path, tmp_path: Path) -> None:
    command = command_of(trainers / "plain.py")
    with detached(command, state_dir, env=ENV):
        wait_until(lambda: (status(state_dir)["step"] or 0) > 10, "some steps", timeout_s=240, every_s=0.05)
        assert ask(state_dir, "pause", "--wait", timeout_s=120).returncode == 0
        told = status(state_dir)
        assert (told["state"], told["samples_per_s"]) == ("paused", None)
        assert ask(state_dir, "set", "num_workers=2", "--now").returncode == 0
        later = status(state_dir)
        assert later["step"] == told["step"] and later["ledger"][0]["state"] == "queued"
        assert ask(state_dir, "resume").returncode == 0
        wait_until(lambda: status(state_dir)["state"] == "ended", "the end", timeout_s=240)
        report = json.loads(ask(state_dir, "report", "--json").stdout)
    bare = run_bare(command, tmp_path, ENV)
    under = (state_dir / "runs" / "it" / "output.log").read_bytes()
    assert re.findall(rb"(?:loss|FINAL) .*", under) == re.findall(rb"(?:loss|FINAL) .*", bare.output)
    assert report["ledger"][0]["at_step"] is not None and report["ledger"][0]["outcome"] != "refused"
    assert report["exit_status"] == 0 and report["paused_s"] > 0
    epochs = report["loaders"][0]["samples_by_epoch"]
    assert epochs == [400] * 4

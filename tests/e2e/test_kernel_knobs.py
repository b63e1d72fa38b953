"""The knobs of the whole training on an unmodified script in its own process: what the script itself saw of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.bare import command_of, run_bare
from support.outcome import TRAINERS
from support.under import run_under

TELLS = TRAINERS / "tells_kernels.py"


def lines(output: bytes) -> list[str]:
    return [line for line in output.decode().splitlines() if line[:1].isdigit()]


@pytest.mark.long
def test_scheduled_through_the_command_line(state_dir: Path, tmp_path: Path) -> None:
    """Each epoch runs under what was asked, and the first ones are those of a bare run to the last digit."""
    options = ("--at", "epoch:2", "autocast=bf16", "--at", "epoch:4", "autocast=script")
    options += ("--at", "epoch:5", "threads=2", "--at", "epoch:6", "matmul=high")
    under = run_under(command_of(TELLS, ("8", str(tmp_path / "under.pt"))), state_dir, options)
    bare = run_bare(command_of(TELLS, ("8", str(tmp_path / "bare.pt"))), tmp_path)
    found, expected = lines(under.output), lines(bare.output)
    assert under.status == 0, under.talk
    assert found[:2] == expected[:2]
    plain = "[('torch.float32', 1, 'highest')]"
    low = "[('torch.bfloat16', 1, 'highest')]"
    threads, matmul = "[('torch.float32', 2, 'highest')]", "[('torch.float32', 2, 'high')]"
    for epoch, seen in enumerate([plain, plain, low, low, plain, threads, matmul, matmul]):
        assert seen in found[epoch], (epoch, found)
        assert "] torch.float32 " in found[epoch], "the loss outside must see float32"
    ours, theirs = torch.load(tmp_path / "under.pt"), torch.load(tmp_path / "bare.pt")
    assert list(ours) == list(theirs)
    assert all(torch.allclose(ours[name], theirs[name], atol=0.02) for name in ours)


@pytest.mark.long
def test_from_the_start(state_dir: Path, tmp_path: Path) -> None:
    options = ("--set", "autocast=bf16", "--set", "threads=2")
    under = run_under(command_of(TELLS, ("3", str(tmp_path / "under.pt"))), state_dir, options)
    assert under.status == 0, under.talk
    assert all("[('torch.bfloat16', 2, 'highest')]" in line for line in lines(under.output)[1:]), under.output


def test_refused_is_said_and_harms_nothing(state_dir: Path, tmp_path: Path) -> None:
    """fp16 without a GradScaler: refused with the reason, and the training is the bare one."""
    under = run_under(
        command_of(TELLS, ("4", str(tmp_path / "under.pt"))), state_dir, ("--at", "epoch:1", "autocast=fp16")
    )
    bare = run_bare(command_of(TELLS, ("4", str(tmp_path / "bare.pt"))), tmp_path)
    assert under.status == 0 and lines(under.output) == lines(bare.output)
    assert "GradScaler" in under.talk


def test_compiled_and_back(state_dir: Path, tmp_path: Path) -> None:
    """The real inductor in the real process; the file that the script saves afterwards has the plain names.

    What cannot be had from the start is refused, never queued; what was compiled stands beside its trial.
    """
    options = ("--set", "autocast=fp16", "--at", "epoch:1", "compile=default", "--at", "epoch:3", "compile=off")
    under = run_under(command_of(TELLS, ("5", str(tmp_path / "under.pt"))), state_dir, options)
    assert under.status == 0, under.talk
    found = lines(under.output)
    assert "float32" in found[0].split("]")[0] and "[('compiled',)" in found[1] and "compiled" not in found[4]
    assert list(torch.load(tmp_path / "under.pt")) == ["inner.weight", "inner.bias", "outer.weight", "outer.bias"]
    told = under.report
    asked = told["knobs"]["autocast"]
    assert (asked["state"], asked["asked"], asked["in_force"]) == ("refused", "fp16", "off")
    assert "GradScaler" in asked["reason"] and "autocast fp16: not applied" in under.talk
    on, off = told["ledger"]
    assert (on["change"], off["change"]) == ({"compile": ["off", "default"]}, {"compile": ["default", "off"]})
    assert on["compiled"]["total_s"] > 0.1 and on["compiled"]["graphs"] >= 1 and off["compiled"] is None
    assert told["compile"] == on["compiled"]
    assert abs(told["phases_ms"]["compile_total"] - 1000 * told["compile"]["total_s"]) < 1
    # compiling took most of its first epoch and is in none of its time
    assert told["epoch_s"]["now"] is not None and told["epoch_s"]["now"] < on["compiled"]["total_s"]

"""What a hand-off of 1 GB costs: the checksums before, the writing with sync and check, the reading back. Printed only.

The training stands still for the first two, the next process for the third.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from cockpit.probe.handoff.contents import contents_of
from cockpit.probe.handoff.folder import Owner, newest, write

OWNER = Owner("run", "/train.py", ("model",))


def timed(work: Any, *args: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work(*args)
    return time.perf_counter() - began, found


@pytest.mark.bench
def test_write_and_check_of_a_gigabyte(tmp_path: Path, capsys: Any) -> None:
    model = {f"layer.{index}": torch.rand(1_000_000) for index in range(250)}
    state = {"things": {"model": model}}
    rows = []
    for _ in range(3):
        sums_s, contents = timed(contents_of, torch, state)
        facts = {"epoch": 1, "step": 1}
        write_s, (_, nbytes) = timed(write, torch, str(tmp_path), OWNER, facts, state, contents)
        read_s, (found, passed) = timed(newest, torch, str(tmp_path), OWNER)
        assert found is not None and not passed
        save_s, _ = timed(torch.save, state, str(tmp_path / "bare.pt"))
        rows.append((sums_s, write_s, read_s, save_s))
    sums_s, write_s, read_s, save_s = (sorted(column)[1] for column in zip(*rows, strict=True))
    with capsys.disabled():
        print(
            f"\n{nbytes / 1e9:.2f} GB: checksums {sums_s:.2f} s, write, sync and check {write_s:.2f} s, read and check"
            f" {read_s:.2f} s (medians of 3; torch.save alone, not synced, {save_s:.2f} s; load"
            f" {os.getloadavg()[0]:.1f})"
        )

"""Says beside each figure what share of the CPUs somebody else used meanwhile: no figure can be read without it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.under import processes_of

TICKS = os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """CPU seconds that anybody has used since boot, idle and waiting left out."""
    user, nice, system, _, _, irq, soft, steal, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + soft + steal) / TICKS


def ours_s(state_dir: Path) -> float:
    """CPU seconds of this process, its ended children, and what lives of the test's runs with its ended children."""
    total = sum(os.times()[:4])
    for pid in processes_of(state_dir):
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # a child of ours that lives is not in our times yet; its own ended children are in its
            total += sum(map(int, fields[11:15])) / TICKS
    return total


@pytest.fixture(autouse=True)
def others(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Around each bench. What a run used before it ended by itself is counted as others': the share errs upwards."""
    machine, ours, began = machine_s(), ours_s(state_dir), time.perf_counter()
    yield
    took = (time.perf_counter() - began) * (os.cpu_count() or 1)
    used = machine_s() - machine - (ours_s(state_dir) - ours)
    with capsys.disabled():
        print(f"  (meanwhile others used {100 * max(0.0, used) / took:.0f} % of the CPUs)")

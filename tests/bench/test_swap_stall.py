"""How long a swap in the middle of an epoch stalls the training, and coming back from a failed one: printed only.

The stall is all the time that ``__next__`` takes on top of an ordinary one because of the swap: building the new
workers, the first wait after the drain, ending the old ones. The loader is slow enough that workers matter.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import Any

import pytest
import torch
from probe.swap_harness import Harness
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Slow(Dataset):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((3, 64, 64), float(index))


def waits(before: int, after: int) -> tuple[list[float], float]:
    """Seconds of each ``__next__`` of an epoch with a swap at batch 15, and the stall that the swap reports."""
    loader = DataLoader(Slow(), batch_size=8, num_workers=before)
    with Harness({}, {(0, 15): {"num_workers": after}}) as harness:
        iterator, times = iter(loader), []
        for _ in range(40):
            began = time.perf_counter()
            next(iterator)
            times.append(time.perf_counter() - began)
            time.sleep(0.02)
        del iterator
    return times, harness.swaps[0].stall_ns / 1e9


def bare_start(workers: int) -> float:
    """Seconds that torch's own ``__iter__`` takes with so many workers."""
    loader = DataLoader(Slow(), batch_size=8, num_workers=workers)
    began = time.perf_counter()
    iterator = iter(loader)
    took = time.perf_counter() - began
    del iterator
    return took


@pytest.mark.bench
@pytest.mark.parametrize("change", [(0, 2), (2, 4), (4, 2), (2, 0)])
def test_stall_of_a_swap(change: tuple[int, int], capsys: Any) -> None:
    longest, reported, extra = [], [], []
    for _ in range(5):
        times, stall = waits(*change)
        usual = statistics.median(times[5:15])
        around = times[15:30]
        longest.append(max(around))
        extra.append(sum(max(0.0, each - usual) for each in around))
        reported.append(stall)
    bare = statistics.median(bare_start(change[1]) for _ in range(5))
    with capsys.disabled():
        print(
            f"\n{change[0]} -> {change[1]} workers: build {statistics.median(reported) * 1e3:.0f} ms (median of 5,"
            f" worst {max(reported) * 1e3:.0f}; torch's own start {bare * 1e3:.0f}), longest __next__"
            f" {statistics.median(longest) * 1e3:.0f} ms, extra wait over the next 15 batches"
            f" {statistics.median(extra) * 1e3:.0f} ms; load {os.getloadavg()[0]:.1f}"
        )
    assert min(reported) > 0


class Failing(Slow):
    """Fails as ``how`` says in workers that cockpit has started, from their second batch on."""

    def __init__(self, how: str) -> None:
        self.how, self.loaded = how, 0

    def __getitem__(self, index: int) -> torch.Tensor:
        self.loaded += 1
        if get_worker_info() is not None and get_worker_info().num_workers == 3 and self.loaded > 8:
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("only in workers")
        return super().__getitem__(index)


@pytest.mark.bench
@pytest.mark.parametrize("how", ["killed", "raises"])
@pytest.mark.parametrize("before", [0, 2])
def test_stall_of_a_roll_back(before: int, how: str, capsys: Any) -> None:
    """From 0 or 2 workers to 3 that fail, and back: the longest wait, of which loading again is a part."""
    longest, usual, extra = [], [], []
    for _ in range(5):
        loader = DataLoader(Failing(how), batch_size=8, num_workers=before)
        with Harness({}, {(0, 15): {"num_workers": 3}}) as harness:
            iterator, times = iter(loader), []
            for _ in range(40):
                began = time.perf_counter()
                next(iterator)
                times.append(time.perf_counter() - began)
                time.sleep(0.02)
            del iterator
        assert len(harness.notices) == 1
        usual.append(statistics.median(times[5:15]))
        longest.append(max(times[16:]))
        extra.append(sum(max(0.0, each - usual[-1]) for each in times[16:]))
    with capsys.disabled():
        print(
            f"\n{before} -> 3 workers, one {how}, and back: longest __next__ {statistics.median(longest) * 1e3:.0f} ms"
            f" (median of 5, worst {max(longest) * 1e3:.0f}; an ordinary one {statistics.median(usual) * 1e3:.1f}),"
            f" {statistics.median(extra) * 1e3:.0f} ms in all; load {os.getloadavg()[0]:.1f}"
        )

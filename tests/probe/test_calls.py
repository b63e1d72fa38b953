"""What a step costs in the one unit that repeats: Python calls in the probe's own code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from watched import Rows, Slow, SlowSGD, Watched, train_step

import cockpit.probe
from cockpit.probe.guard import UNSEEN

ALLOWED = 12
OURS = (str(Path(cockpit.probe.__file__).parent), UNSEEN)


def calls_by_step(it: Watched, loader: DataLoader, **ask: object) -> list[list[str]]:
    """Names of the probe's functions entered, for each step of one epoch after the first."""
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    calls: list[list[str]] = []

    def watch(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls[-1].append(frame.f_code.co_qualname)

    for _ in range(2):
        for batch in loader:
            calls.append([])
            sys.setprofile(watch)
            train_step(model, optimizer, batch)
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("workers", [0, 1])
def test_a_plain_step_costs_at_most_twelve_calls(it, workers):
    loader = DataLoader(Rows(it, 64), batch_size=4, num_workers=workers)
    calls = calls_by_step(it, loader)
    plain = calls[4:12]
    print(plain[0])
    assert max(map(len, plain)) <= ALLOWED, max(plain, key=len)
    assert min(map(len, plain)) >= 6


def test_a_managed_loaders_step_costs_little_more(it):
    """The chain behind a changed loader is Python too: bounded, and printed."""
    it.probe.asks.start({"set": {"num_workers": 1}})
    calls = calls_by_step(it, DataLoader(Rows(it, 64), batch_size=4))
    plain = calls[4:12]
    print(sorted(plain[0]))
    assert max(map(len, plain)) <= 3 * ALLOWED


def test_a_forward_of_a_submodule_costs_nothing(it):
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    for batch in DataLoader(Rows(it, 8), batch_size=4):
        train_step(model, optimizer, batch)
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code) if event == "call" else None)
    model.inner(batch)
    sys.setprofile(None)
    assert not [code for code in entered if code.co_filename.startswith(OURS)]

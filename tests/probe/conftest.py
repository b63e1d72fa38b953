"""Fixtures of the probe's own tests."""

from __future__ import annotations

import gc
import sys

import pytest
from fake_engine import ROOT
from forked import Forks
from watched import watched

LISTED: set[int] = set()
"""Ids of iterators that stand in torch's table of workers whose death raises, as those who entered them would say."""


@pytest.fixture(scope="session", autouse=True)
def torchs_table():
    """torch's own table cannot be read: it is kept beside it."""
    from torch.utils.data._utils import signal_handling

    enter, leave = signal_handling._set_worker_pids, signal_handling._remove_worker_pids

    def entered(key, pids):
        enter(key, pids)
        LISTED.add(key)

    def left(key):
        leave(key)
        LISTED.discard(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal_handling, "_set_worker_pids", entered)
        patch.setattr(signal_handling, "_remove_worker_pids", left)
        yield


@pytest.fixture(autouse=True)
def nobody_stays_listed(torchs_table):
    """An iterator that is gone and still listed there ends the script's next one that gets its id: ValueError."""
    yield
    if LISTED:
        gc.collect()
    left, _ = list(LISTED), LISTED.clear()
    assert not left, "iterators that are gone stand in torch's table of workers"


@pytest.fixture(autouse=True)
def autocast_as_it_was():
    """What a change has put in its place stays as long as the process: another test's autocast is its own."""
    import torch

    kind = torch.amp.autocast_mode.autocast
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__enter__", kind.__enter__)
        yield


@pytest.fixture(autouse=True)
def nothing_compiled_yet():
    """The probe asks Dynamo whether this process has compiled anything: what other tests compiled is not meant."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is not None:
        counters.clear()


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Trainings in processes of their own; torch is imported once for all that ask for it."""
    forks = Forks(ROOT, tmp_path_factory.mktemp("out"))
    yield forks
    forks.close()


@pytest.fixture
def it(tmp_path, monkeypatch):
    """A watched process: see ``watched.Watched``."""
    with watched(tmp_path, monkeypatch) as inside:
        yield inside

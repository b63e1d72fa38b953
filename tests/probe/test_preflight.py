"""What a queued change would need and the machine does not have; nothing is said about what is not known."""

from __future__ import annotations

import collections
import multiprocessing
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from cockpit.probe.anew import forks
from cockpit.probe.asks import Ask, Asks
from cockpit.probe.groups import Group
from cockpit.probe.preflight import Machine, Preflight, Weight, larger_batches, look, warnings, weigh, words_of
from cockpit.probe.refusals import cannot_be_pickled

NONE = Group(0, None, False, False, True)
TWO = Group(2, 2, False, False, True)
EIGHT = Group(8, 4, False, False, True)
PLENTY = Machine(10**12, 10**6, 10**12, 10**6)
HEAVY = Weight(50 * 10**6, 3)


def test_a_batch_weighs_what_its_tensors_do() -> None:
    x, y = torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64)
    assert weigh([x, y]) == Weight(4 * 8 * 4 + 4 * 8, 2)
    assert weigh({"x": x, "more": (y, [x])}) == Weight(2 * 128 + 32, 3)
    assert weigh(collections.namedtuple("Pair", "x y")(x, y)) == Weight(160, 2)
    assert weigh("text") is None and weigh([1, 2.0]) is None


def test_a_batch_whose_attributes_are_the_scripts_code_is_not_asked() -> None:
    class Batch:
        @property
        def nbytes(self) -> int:
            raise AssertionError("the script's code has run")

        shape = (3,)

    assert weigh([Batch(), torch.zeros(2)]) == Weight(8, 1)


def test_all_is_well() -> None:
    assert warnings(EIGHT, NONE, HEAVY, PLENTY) == []
    assert warnings(EIGHT, NONE, None, Machine(None, None, None, None)) == []


def test_shared_memory() -> None:
    small = PLENTY._replace(shm_free=64 * 10**6)
    assert warnings(EIGHT, NONE, HEAVY, small) == [
        "8 workers × 4 batches of 50 MB may need 1.6 GB of /dev/shm, and 64 MB are free"
    ]
    assert warnings(EIGHT, NONE, None, small) == []  # nothing is known of a batch
    assert warnings(TWO, EIGHT, HEAVY, small) == []  # it needs less than it has now


def test_open_files() -> None:
    few = PLENTY._replace(fds_left=100)
    (words,) = warnings(EIGHT, NONE, HEAVY, few)
    assert words == "it may need 128 more open files, and 68 are left (ulimit -n)"
    assert warnings(TWO, NONE, HEAVY, few) == []


def test_memory() -> None:
    tight = PLENTY._replace(memory_left=3 * 10**9, worker_size=1_200_000_000)
    (words,) = warnings(EIGHT, TWO, HEAVY, tight)
    assert words == "6 more workers of 1.2 GB each, and 1.4 GB of batches ready: 3.0 GB of memory are left"
    assert warnings(TWO, EIGHT, HEAVY, tight) == []


def test_memory_where_no_worker_was_seen_yet() -> None:
    """What is certain: the samples of a batch and the batch, and for a started one a torch of its own."""
    tight = PLENTY._replace(memory_left=10**9, worker_size=None)
    (words,) = warnings(EIGHT, NONE, HEAVY, tight)
    assert words == "8 more workers of at least 108 MB each, and 1.6 GB of batches ready: 1.0 GB of memory are left"
    assert warnings(TWO, NONE, HEAVY, tight) == []
    assert warnings(EIGHT, NONE, None, tight) == []
    (words,) = warnings(EIGHT, NONE, None, tight, forks=False)
    assert words == "8 more workers of at least 150 MB each: 1.0 GB of memory are left"


def test_larger_batches_beside_the_scripts_own_workers() -> None:
    small = PLENTY._replace(shm_free=64 * 10**6)
    words = larger_batches(TWO, Weight(10 * 10**6, 2), 48, 24, small)
    assert words == "2 workers × 2 batches of 20 MB may need 80 MB of /dev/shm, and 64 MB are free"
    assert larger_batches(TWO, Weight(10 * 10**6, 2), 36, 24, small) is None
    tight = PLENTY._replace(memory_left=50 * 10**6)
    words = larger_batches(TWO, Weight(10 * 10**6, 2), 48, 24, tight)
    assert words == "2 workers × 2 batches of 20 MB may need 80 MB of memory more, and 50 MB are left"
    assert larger_batches(TWO, Weight(10 * 10**6, 2), 12, 24, small) is None, "smaller ones need less"
    assert larger_batches(TWO, HEAVY, 48, 24, Machine(None, None, None, None)) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_a_size_that_its_workers_cannot_carry_is_refused(
    it: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.probe.preflight.look", lambda pids: PLENTY._replace(shm_free=70))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Sample(), batch_size=2, num_workers=workers)
    for epoch in range(3):
        for step, x in enumerate(loader):
            model(x).sum().backward()
            optimizer.step()
            if epoch == 1 and step == 1:
                it.ask("c1", batch_size=4)
    told = it.of("change", id="c1")[-1]
    assert told["state"] == ("refused" if workers else "settling")
    assert not workers or "of /dev/shm" in told["note"], "said before as well"
    assert not workers or "2 workers × 2 batches of 32 B may need 128 B of /dev/shm" in told["reason"]


@pytest.mark.parametrize(("size", "words"), [(0, "0 B"), (999, "999 B"), (1_200, "1.2 kB"), (64 * 10**6, "64 MB")])
def test_bytes_in_words(size: int, words: str) -> None:
    assert words_of(size) == words


def test_the_machine_as_it_is() -> None:
    found = look([os.getpid()])
    assert found.worker_size is not None and found.worker_size > 10**6
    assert found.memory_left is not None and found.shm_free is not None
    assert look([2**22 + 1]).worker_size is None


def test_only_what_waits_for_this_loader_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.probe.preflight.look", lambda workers: PLENTY._replace(shm_free=10**6))
    recorder = SimpleNamespace(steps=0, epoch=0, clock=lambda: 0, due_step=-1, attention=False, awaited=False)
    asks = Asks(recorder)  # type: ignore[arg-type]
    record: Any = SimpleNamespace(
        id="train.py:1",
        role="train",
        script=NONE,
        in_force=NONE,
        weight=HEAVY,
        workers=(),
        forks=True,
        done_on=set(),
        batch_size=8,
    )
    told = Preflight(asks, {record.id: record}, lambda name, work, *args: work(*args))
    assert told.of(record) == ({}, None)
    asks.waiting.append(Ask("c1", {"num_workers": 4}, False, "other.py:9"))
    assert told.of(record) == ({}, None)
    asks.waiting.append(Ask("c2", {"num_workers": 4, "batch_size": 8}, False, None))
    waiting, words = told.of(record)
    assert waiting == {"num_workers": 4}
    assert words == "4 workers × 2 batches of 50 MB may need 400 MB of /dev/shm, and 1.0 MB are free"
    asks.waiting.append(Ask("c3", {"in_order": False}, False, None))
    assert told.of(record)[0] == {"num_workers": 4, "in_order": False}


@pytest.mark.parametrize("together", [True, False], ids=["in one change", "in two that wait"])
@pytest.mark.parametrize(
    "tight", [{"shm_free": 10**9}, {"memory_left": 2 * 10**9}], ids=lambda tight: next(iter(tight))
)
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_the_size_of_their_batches_are_weighed_together(
    monkeypatch: pytest.MonkeyPatch, workers: int, tight: dict[str, int], together: bool
) -> None:
    """Neither alone needs too much; both do: said in the change's note, and in the row of what waits."""
    monkeypatch.setattr("cockpit.probe.preflight.look", lambda pids: PLENTY._replace(**tight))
    recorder = SimpleNamespace(steps=0, epoch=0, clock=lambda: 0, due_step=-1, attention=False, awaited=False)
    asks = Asks(recorder)  # type: ignore[arg-type]
    record: Any = SimpleNamespace(
        id="train.py:1", role="train", script=NONE, in_force=TWO if workers else NONE, weight=HEAVY, workers=(),
        forks=True, done_on=set(), batch_size=2,
    )  # fmt: skip
    told = Preflight(asks, {record.id: record}, lambda name, work, *args: work(*args))
    more, larger = {"num_workers": 4}, {"batch_size": 10}
    assert not told.foretell(Ask("c1", more, False, None))
    assert not told.foretell(Ask("c2", larger, False, None))
    if together:
        words = told.foretell(Ask("c3", more | larger, False, None))
    else:
        asks.waiting += [Ask("c4", larger, False, None), Ask("c5", more, False, None)]
        _, words = told.of(record)
    assert words and ("4 workers × 2 batches of 250 MB" in words or "more workers of at least 5" in words), words
    assert not told.foretell(Ask("c6", more | {"batch_size": 2}, False, None))


def test_a_change_that_lands_at_once_is_told_of_first(it: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.probe.preflight.look", lambda workers: PLENTY._replace(fds_left=40))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    it.ask("early", in_order=False, num_workers=4)  # nothing is known yet that could be said
    for step, x in enumerate(DataLoader(Sample(), batch_size=2)):
        model(x).sum().backward()
        optimizer.step()
        if step == 1:
            assert it.of("change", id="early")[-1]["note"].startswith("it may need 24 more open files")
        if step == 2:
            it.probe.asks.receive({"m": "drop", "id": "early"})
            it.ask("c1", now=True, num_workers=2)
    words = "it may need 12 more open files, and 8 are left (ulimit -n)"
    told = it.of("change", id="c1")
    assert [(move["state"], move["note"]) for move in told] == [(s, words) for s in ("queued", "applying", "settling")]


def test_nothing_is_said_where_nothing_is_to_be_said(it: Any) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, x in enumerate(DataLoader(Sample(), batch_size=2)):
        model(x).sum().backward()
        optimizer.step()
        if step == 2:
            it.ask("c1", now=True, num_workers=1)
    told = it.of("change", id="c1")
    assert [(move["state"], move["note"]) for move in told] == [("applying", None), ("settling", None)]


# ---- what spawned workers cannot be given ----


class Rows(Dataset):
    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


class Reduced(Rows):
    def __getstate__(self) -> dict[str, Any]:
        return {}


def test_what_surely_cannot_be_pickled() -> None:
    class Local(Rows):
        pass

    assert cannot_be_pickled(DataLoader(Rows(torch.relu))) is None
    assert cannot_be_pickled(DataLoader(TensorDataset(torch.zeros(2)))) is None
    assert "collate_fn is a lambda" in str(cannot_be_pickled(DataLoader(Rows(), collate_fn=lambda rows: rows)))
    assert "transform is a lambda" in str(cannot_be_pickled(DataLoader(Rows(lambda x: x))))
    assert "inside a function" in str(cannot_be_pickled(DataLoader(Local())))
    assert cannot_be_pickled(DataLoader(Reduced(lambda x: x))) is None  # it takes care of that itself


def test_how_workers_would_be_started() -> None:
    assert forks(DataLoader(Rows())) == (multiprocessing.get_start_method() == "fork")
    assert not forks(DataLoader(Rows(), num_workers=1, multiprocessing_context="spawn"))


def test_the_row_tells_while_the_change_is_queued(it: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.probe.preflight.look", lambda workers: PLENTY._replace(fds_left=40))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, x in enumerate(DataLoader(Sample(), batch_size=2)):
        model(x).sum().backward()
        optimizer.step()
        if step == 3:
            assert row(it)["asked"] is None and row(it)["note"] is None
            it.ask("c1", num_workers=8)
            assert (row(it)["asked"], row(it)["in_force"]) == (8, 0)
            assert row(it)["note"] == "it may need 48 more open files, and 8 are left (ulimit -n)"


class Sample(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2)


def row(it: Any) -> dict[str, Any]:
    """What is told of num_workers now."""
    (loader,) = it.of("loaders")[-1]["loaders"]
    return next(knob for knob in loader["knobs"] if knob["name"] == "num_workers")

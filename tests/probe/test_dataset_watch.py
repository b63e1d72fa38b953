"""What the script does to its dataset: between epochs, in the middle of one, and what a dataset does to itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, get_worker_info

from cockpit.probe.dataset_watch import DatasetWatch
from cockpit.probe.groups import Refused
from cockpit.probe.sparing import Sparing
from tests.probe.swap_harness import Harness


class Noisy(Dataset):
    """What is asked of it and what it keeps for itself."""

    noise = 0

    def __init__(self) -> None:
        self.calls, self.cache, self.transform = 0, None, Crop()

    def __len__(self) -> int:
        return 16

    def set_noise(self, noise: int) -> None:
        self.noise = noise

    def _load(self) -> Any:
        self.cache = torch.zeros(3)
        return self.cache

    def __getitem__(self, index: int) -> int:
        self.calls += 1
        self.cache = self._load() if self.cache is None else self.cache
        return self.transform.crop(index) + self.noise


class Crop:
    def __init__(self) -> None:
        self.size, self.last = 3, None

    def crop(self, index: int) -> int:
        self.last = index
        return index


class Model(torch.nn.Module):
    steps = 0


def watch() -> DatasetWatch:
    return DatasetWatch(torch.nn.Module, lambda: 0)


CHANGES = {
    "dataset.noise": lambda noisy: setattr(noisy, "noise", noisy.noise + 1),
    "dataset.noise ": lambda noisy: noisy.set_noise(noisy.noise + 1),
    "dataset.transform.size": lambda noisy: setattr(noisy.transform, "size", noisy.transform.size + 1),
    "dataset.transform": lambda noisy: setattr(noisy, "transform", Crop()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_the_loop_changes_is_found_under_a_wrapper(what: str) -> None:
    noisy, seen = Noisy(), watch()
    seen.look_at(Subset(noisy, [1]))
    CHANGES[what](noisy)
    whole = Subset(noisy, [1])
    seen = watch()
    seen.look_at(whole)
    CHANGES[what](noisy)
    seen.look_within(whole)
    assert seen.restless == what.strip() and seen.changing is None
    seen.look_at(whole)
    assert seen.changing == what.strip()


def test_what_a_dataset_does_to_itself_is_not_the_loops_doing() -> None:
    noisy = Noisy()
    noisy.model = Model()  # type: ignore[attr-defined]
    whole, seen = ConcatDataset([noisy]), watch()
    seen.look_at(whole)
    noisy[3]
    noisy.model.steps += 1  # type: ignore[attr-defined]
    seen.look_within(whole)
    assert seen.restless is None


def test_looks_that_nobody_needs_take_little_of_the_time() -> None:
    now = iter([0, 1_000, 10_000, 20_000, 600_000, 601_000])
    seen, noisy = DatasetWatch(torch.nn.Module, lambda: next(now)), Noisy()
    seen.look_at(noisy, needed=False)
    seen.look_at(noisy, needed=False)  # no time for it: nothing is known of this epoch's start
    noisy.noise += 1
    seen.look_within(noisy)
    assert seen.restless is None
    seen.look_at(noisy, needed=False)
    assert seen.changing == "noise"


def test_workers_are_not_started_where_the_loop_changes_its_dataset() -> None:
    noisy = Noisy()
    loader = DataLoader(Subset(noisy, range(16)), batch_size=2)
    with Harness() as harness:
        batches, control = iter(loader), harness.control(loader)
        next(batches)
        assert control.plan({"num_workers": 2}, now=True).num_workers == 2
        noisy.noise = 1
        with pytest.raises(Refused, match=r"the loop changes the dataset while it trains \(dataset.noise\)"):
            control.plan({"num_workers": 2}, now=True)


def test_a_change_between_epochs_is_no_reason() -> None:
    noisy = Noisy()
    loader = DataLoader(noisy, batch_size=2)
    with Harness({1: {"num_workers": 1}, 2: {"num_workers": 0}}) as harness:
        for epoch in range(3):
            assert [int(each) for batch in loader for each in batch] == [at + noisy.noise for at in range(16)]
            harness.control(loader).look_within()
            noisy.noise = epoch + 1
    assert not harness.notices and harness.control(loader).refusals()["num_workers"].note is not None


class Writes(Dataset):
    """Writes down what it serves, in each way there is; ``taken`` is what the loop does with it."""

    def __init__(self) -> None:
        self.listed: list[int] = []
        self.by_name: dict[int, int] = {}
        self.table = torch.zeros(16)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        self.listed.append(index)
        self.by_name[index] = index
        self.table[index] = 1
        return index


TAKEN = {
    "listed": lambda writes: writes.listed.clear(),
    "by_name": lambda writes: writes.by_name.popitem(),
    "table": lambda writes: writes.table.mul_(2),
    "": lambda writes: (writes.listed[-1], len(writes.by_name), writes.table.sum()),  # caches, looked at
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_the_dataset_writes_down_and_the_loop_takes_would_stay_in_workers(what: str) -> None:
    writes = Writes()
    loader = DataLoader(writes, batch_size=2)
    with Harness() as harness:
        batches, control = iter(loader), harness.control(loader)
        for _ in range(5):
            next(batches)
            TAKEN[what](writes)
        assert "_next_data" not in vars(batches)
        if what:
            with pytest.raises(Refused, match=r"the loop changes the dataset while it trains \(%s\)" % what):
                control.plan({"num_workers": 2}, now=True)
        else:
            assert control.plan({"num_workers": 2}, now=True).num_workers == 2


def test_a_plain_list_that_the_loop_empties_as_it_goes_is_looked_at_as_well() -> None:
    rows = [[at] for at in range(16)]
    with Harness() as harness:
        loader = DataLoader(rows, batch_size=2, collate_fn=lambda batch: rows[0].append(len(batch)))  # type: ignore[arg-type]
        batches = iter(loader)
        for _ in range(5):
            next(batches)
            rows[0].clear()
        assert harness.control(loader).dataset.restless == "[0]"


def test_what_a_dataset_raises_in_a_fetch_that_is_looked_at_shows_no_frame_of_ours() -> None:
    class Rotten(Noisy):
        def __getitem__(self, index: int) -> int:
            raise LookupError("theirs")

    with Harness():
        batches = iter(DataLoader(Rotten()))
        assert "_next_data" in vars(batches)
        with pytest.raises(LookupError) as raised:
            next(batches)
    assert not [entry for entry in raised.traceback if "taken" in str(entry.path)] and "_next_data" not in vars(batches)


# ---- streams ----


class Seeded(IterableDataset):
    """Asks which worker it is in, and not to share itself out."""

    def __iter__(self) -> Iterator[int]:
        assert get_worker_info() is None or get_worker_info().id >= 0
        return iter(range(12))


def test_a_stream_that_every_worker_serves_whole_goes_back() -> None:
    loader = DataLoader(Seeded(), batch_size=2)
    with Harness({1: {"num_workers": 2}}) as harness:
        served = []
        for _ in range(3):
            served.append([int(each) for batch in loader for each in batch])
            control = harness.control(loader)
            control.dataset.served(control.in_force.num_workers, len(served[-1]))
        with pytest.raises(Refused, match="served the whole stream"):
            harness.control(loader).plan({"num_workers": 3})
        assert harness.control(loader).plan({"num_workers": 1}).num_workers == 1
    assert [len(each) for each in served] == [12, 24, 12]
    (notice,) = harness.notices
    assert notice.reason == "every worker served the whole stream: 24 samples in an epoch instead of 12"
    assert notice.in_force.num_workers == 0


@pytest.mark.parametrize("epochs", [[(0, 12), (2, 12)], [(0, 12), (1, 12)], [(2, 24), (0, 12)], [(0, 12), (2, 13)]])
def test_other_numbers_say_nothing(epochs: list[tuple[int, int]]) -> None:
    seen = DatasetWatch(torch.nn.Module, time.perf_counter_ns)
    for workers, samples in epochs:
        seen.served(workers, samples)
    assert seen.whole is None


# ---- as the probe sees it ----


class Rows(Dataset):
    scale = 1.0

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2) * self.scale


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        get_worker_info()
        return (torch.ones(2) for _ in range(12))


def train(it: Any, loader: Any, epochs: int, after_step: Any = None) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for step, x in enumerate(loader):
            model(x).sum().backward()
            optimizer.step()
            if (epoch, step) == (0, 2):
                it.ask("c1", num_workers=2)
            if after_step is not None:
                after_step()


def test_a_stream_goes_back_at_the_next_boundary(it: Any) -> None:
    loader = DataLoader(Stream(), batch_size=2)
    train(it, loader, 3)
    told = it.of("change", id="c1")[-1]
    assert told["state"] == "rolled_back"
    assert told["reason"] == "every worker served the whole stream: 24 samples in an epoch instead of 12"
    assert [each["samples"] for each in it.of("epoch")] == [12, 24, 12]


def test_what_the_loop_changes_within_an_epoch_is_known_at_its_end(it: Any) -> None:
    rows = Rows()
    train(it, DataLoader(Subset(rows, range(12)), batch_size=2), 2, lambda: setattr(rows, "scale", rows.scale * 0.9))
    told = it.of("change", id="c1")[-1]
    assert told["state"] == "refused"
    assert "the loop changes the dataset while it trains (dataset.scale)" in told["reason"]


class Cached(Dataset):
    """Keeps what it has made, the ``most`` newest of it."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.cache = most, dict[int, torch.Tensor]()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.cache:
            self.cache[index] = torch.full((2,), float(index))
            while len(self.cache) > self.most:
                del self.cache[next(iter(self.cache))]
        return self.cache[index]


class Refilled(IterableDataset):
    """One buffer for all batches, as datasets do that make their own."""

    def __init__(self) -> None:
        self.buffer = torch.empty(2, 2)

    def __iter__(self) -> Iterator[torch.Tensor]:
        get_worker_info()
        for value in range(12):
            yield self.buffer.fill_(value)


def as_a_pair(it: Any, most: int) -> Any:
    both = Cached(most)
    return zip(DataLoader(both, batch_size=2), DataLoader(both, batch_size=2, shuffle=True), strict=True)


def validating_between(it: Any, most: int) -> Any:
    both = Cached(most)
    held_out = DataLoader(Subset(both, range(32, 64)), batch_size=2)
    for x in DataLoader(Subset(both, range(32)), batch_size=2):
        with torch.no_grad():
            next(iter(held_out)).sum()
        yield (x,)


def reading_itself(it: Any, most: int) -> Any:
    rows = Cached()
    for step, x in enumerate(DataLoader(Subset(rows, range(32)), batch_size=2)):
        rows[63 - step].sum()
        yield (x,)


def in_place(it: Any, most: int) -> Any:
    for x in DataLoader(Refilled(), batch_size=None):
        yield (x.sub_(1.0),)


@pytest.mark.parametrize("most", [1000, 5])
@pytest.mark.parametrize("batches", [as_a_pair, validating_between, reading_itself, in_place])
def test_a_cache_that_others_fill_as_well_and_a_batch_that_is_changed_are_the_datasets_own(
    it: Any, batches: Any, most: int
) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parts in batches(it, most):
        for x in parts:
            model(x).sum().backward()
        optimizer.step()
    watches = [watch for record in it.probe.registry.records.values() for watch in record.learnt.values()]
    assert watches and [watch.restless for watch in watches] == [None] * len(watches)


def test_looks_that_come_one_upon_the_other_are_all_paid_for() -> None:
    spares = Sparing(10)
    spares.took(0, 5)
    spares.took(6, 8)
    spares.took(9, 10)
    assert not spares.is_due(84) and spares.is_due(85)

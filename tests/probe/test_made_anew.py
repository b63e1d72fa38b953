"""What was learnt of a loader's dataset stays with the place, where the script makes its loader anew each epoch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

from cockpit.probe.dataset_watch import KINDS, DatasetWatch, watch_of
from cockpit.probe.groups import Refused
from tests.probe.swap_harness import Harness


class Rows(Dataset):
    def __init__(self) -> None:
        self.scale, self.served, self.text = 1.0, [0], "x" * 9

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        self.served.append(index)
        return torch.ones(2) * self.scale


class Node:
    """A sample that is an object, which the loop writes into."""

    def __init__(self) -> None:
        self.x, self.hidden = torch.ones(2), torch.zeros(2)

    def __getitem__(self, at: int) -> torch.Tensor:
        return self.x[at]


class Whole(IterableDataset):
    """Asks which worker it is in, and not to share itself out."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        get_worker_info()
        return (torch.ones(2) for _ in range(12))


def stacked(batch: list[Node]) -> torch.Tensor:
    return torch.stack([each.x for each in batch])


def train(it: Any, make: Callable[[], Any], epochs: int, after_step: Any = None, **settings: Any) -> Any:
    """With a new loader each epoch, that lives as long as its iterator needs it; workers are asked for in the first."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = None
    for epoch in range(epochs):
        dataset = make()
        for step, x in enumerate(DataLoader(dataset, batch_size=2, **settings)):
            model(x).sum().backward()
            optimizer.step()
            if after_step is not None:
                after_step(dataset)
            if (epoch, step) == (1, 2):
                it.ask("c1", num_workers=2)
    return dataset


def nodes() -> list[Node]:
    return [Node() for _ in range(12)]


def write_hidden(nodes: list[Node]) -> None:
    for node in nodes:
        node.hidden = torch.ones(2)


LOOPS: dict[str, tuple[Callable[[], Any], Any, dict[str, Any], str]] = {
    "sets an attribute": (Rows, lambda rows: setattr(rows, "scale", rows.scale * 0.9), {}, "scale"),
    "sets it under a wrapper": (
        lambda: Subset(Rows(), range(12)), lambda whole: setattr(whole.dataset, "scale", 2 + whole.dataset.scale), {},
        "dataset.scale",
    ),
    "takes what is written down": (Rows, lambda rows: rows.served.clear(), {}, "served"),
    "writes on its samples": (nodes, write_hidden, {"collate_fn": stacked}, r"\[0\].hidden"),
}  # fmt: skip


@pytest.mark.parametrize("anew", [False, True], ids=["same dataset", "new dataset"])
@pytest.mark.parametrize("does", LOOPS)
def test_what_the_loop_was_seen_to_do_refuses_workers_for_the_next_loader(it: Any, does: str, anew: bool) -> None:
    make, after_step, settings, _ = LOOPS[does]
    one = make()
    train(it, make if anew else lambda: one, 3, after_step, **settings)
    (told,) = [each for each in it.of("change", id="c1") if each["state"] == "refused"]
    assert "the loop changes the dataset while it trains" in told["reason"]
    assert len(it.probe.registry.records) == 1


@pytest.mark.parametrize("anew", [False, True], ids=["same dataset", "new dataset"])
def test_a_stream_that_every_worker_serves_whole_gives_way_for_good(it: Any, anew: bool) -> None:
    one = Whole()
    train(it, Whole if anew else lambda: one, 5)
    states = [each["state"] for each in it.of("change", id="c1")]
    assert states[-1] == "rolled_back" and states.count("rolled_back") == 1
    reason = "every worker served the whole stream: 24 samples in an epoch instead of 12"
    assert it.of("change", id="c1")[-1]["reason"] == reason
    assert [each["samples"] for each in it.of("epoch")] == [12, 12, 24, 12, 12]


def test_what_the_loop_does_only_later_takes_the_workers_away_again(it: Any) -> None:
    rows = Rows()
    model, steps = torch.nn.Linear(2, 1), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(5):
        for x in DataLoader(rows, batch_size=2):
            model(x).sum().backward()
            optimizer.step()
            steps += 1
            if steps == 3:
                it.ask("c1", num_workers=2)
            if epoch == 2:
                rows.scale *= 0.9
    told = it.of("change", id="c1")[-1]
    assert told["state"] == "rolled_back" and "(scale)" in told["reason"]
    (record,) = it.probe.registry.records.values()
    assert record.in_force.num_workers == 0


@pytest.mark.parametrize("anew", [False, True], ids=["same dataset", "new dataset"])
def test_what_is_changed_between_epochs_is_known_of_the_dataset_that_lives_on(it: Any, anew: bool) -> None:
    one = Rows()

    def make() -> Rows:
        rows = Rows() if anew else one
        rows.scale += 1
        return rows

    train(it, make, 4)
    assert it.of("change", id="c1")[-1]["state"] == "settling"
    (record,) = it.probe.registry.records.values()
    assert record.refusals["persistent_workers"].can == anew
    if not anew:
        assert "(scale)" in record.refusals["persistent_workers"].reason


# ---- nobody is blamed for another ----


def test_another_dataset_at_the_same_address_was_not_changed() -> None:
    """Datasets of one kind made and dropped in turn: the next one often lies where the last one did."""
    learnt: dict[str, DatasetWatch] = {}
    met = set()
    for at in range(20):
        rows = Rows()
        rows.scale = float(at)
        met.add(id(rows))
        watch = watch_of(learnt, rows, lambda: DatasetWatch(torch.nn.Module, lambda: 0))
        watch.look_at(rows)
        del rows
        holder = Rows()
        holder.scale = -1.0
        watch.look_within(holder)
        del holder
    assert len(met) < 20 and (watch.changing, watch.stale, watch.restless) == (None, None, None)


def test_one_without_weak_references_is_told_from_the_next_loaders() -> None:
    class Slotted:
        __slots__ = ("__dict__",)

        def __getitem__(self, index: int) -> int:
            return index

    learnt: dict[str, DatasetWatch] = {}
    for at in range(20):
        each = Slotted()
        each.scale = at  # type: ignore[attr-defined]
        watch = watch_of(learnt, each, lambda: DatasetWatch(torch.nn.Module, lambda: 0))
        watch.look_at(each)
        watch.look_within(each)
        del each
    assert (watch.changing, watch.restless) == (None, None)
    each = Slotted()
    each.scale = 1  # type: ignore[attr-defined]
    watch.look_at(each)
    each.scale = 2  # type: ignore[attr-defined]
    watch.look_within(each)
    assert watch.restless == "scale"


def test_what_one_kind_does_another_kind_at_the_same_place_does_not() -> None:
    class Other(Rows):
        pass

    learnt: dict[str, Any] = {}

    def watch(dataset: Any) -> DatasetWatch:
        return watch_of(learnt, dataset, lambda: DatasetWatch(torch.nn.Module, lambda: 0))

    watch(Subset(Rows(), [1])).restless = "dataset.scale"
    assert watch(Subset(Rows(), [2])).restless == "dataset.scale"
    assert watch(Subset(Other(), [1])).restless is None and watch(Rows()).restless is None
    watch([Node()]).restless = "[0].hidden"
    assert watch([Node(), Node()]).restless is not None and watch([Rows()]).restless is None and watch([]).loaders == 1
    for at in range(3 * KINDS):
        watch(type("Kind%d" % at, (Rows,), {})())
    assert len(learnt) == KINDS


def test_what_is_known_keeps_no_dataset_and_no_long_text(it: Any) -> None:
    refs, long = [], "y" * 100_000

    def make() -> Rows:
        rows = Rows()
        rows.text = long + str(len(refs))
        refs.append(weakref.ref(rows))
        return rows

    train(it, make, 2)
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    (record,) = it.probe.registry.records.values()
    (watch,) = record.learnt.values()
    values = [value for thing in (watch._seen or {}).values() for value in thing.values.values()]
    assert watch._seen and not [value for value in values if isinstance(value, str) and len(value) > 1_000]


def test_a_long_text_that_is_another_one_is_seen() -> None:
    rows, watch = Rows(), DatasetWatch(torch.nn.Module, lambda: 0)
    rows.text = "a" * 1_000
    watch.look_at(rows)
    rows.text = "".join(["a"] * 1_000)
    watch.look_within(rows)
    assert watch.restless is None
    rows.text = "b" * 1_000
    watch.look_within(rows)
    assert watch.restless == "text"


# ---- what the script's own workers shared ----


class Opens(Dataset):
    """Opens its file at the first sample, wherever that is read."""

    file: Any = None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = Path(__file__).open("rb")  # noqa: SIM115
        return len(self.file.readline()) * 0 + index


def test_what_was_opened_here_while_the_workers_were_away_is_not_given_to_the_next_loaders() -> None:
    dataset, learnt = Opens(), dict[str, Any]()
    with Harness() as harness:
        harness.learnt = learnt
        for epoch, asked in enumerate([{}, {"num_workers": 0}, {"num_workers": 1}]):
            loader = DataLoader(dataset, batch_size=4, num_workers=1)
            control = harness.control(loader)
            if epoch == 2:
                with pytest.raises(Refused, match="an open file"):
                    control.plan(asked, base=control.plan({"num_workers": 0}))
                break
            harness.boundary = {0: asked} if asked else {}
            assert len(list(loader)) == 3
    dataset.file.close()

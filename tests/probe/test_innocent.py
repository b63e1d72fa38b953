"""Datasets and loops that are as they should be: nothing about them is a reason against workers, nor worth a word."""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from cockpit.probe.dataset_watch import DatasetWatch
from cockpit.probe.guard import Guard
from cockpit.probe.held import GLANCE, THOROUGH, HeldWatch, shortened
from cockpit.probe.reach import Reached
from tests.probe.swap_harness import Harness

WATCH = HeldWatch(torch, time.perf_counter_ns)
HOME = Path(tempfile.mkdtemp())
NOTHING = (None, None)


class Rows(Dataset):
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return index


def package(name: str, text: str) -> dict[str, Any]:
    """What a module of an installed package would hold."""
    import sys
    from types import ModuleType

    module = ModuleType(name)
    module.__file__ = "/usr/lib/python3/dist-packages/%s.py" % name
    sys.modules[name] = module
    exec(text, vars(module))
    return vars(module)


TOKENIZER = """
import socket
CLIENT = socket.socketpair()
class Tokenizer:
    lock = iter([1])
    def __init__(self): self.words = {"a": 1}
    def __call__(self, text): return CLIENT, self.words
"""
WRITER = """
class Writer:
    def __init__(self, *held): self.held = held
"""
PAIR = socket.socketpair()


def log() -> Any:
    file = (HOME / "log.csv").open("w+")
    file.write("step,loss")
    file.flush()
    return file


class Trainer:
    """Everything that a loop of one's own has, and a collate that uses little of it."""

    def __init__(self) -> None:
        self.scale, self.log, self.sock = 2, log(), PAIR[0]
        self.loader = DataLoader(Rows(), 2, collate_fn=self.collate)
        self.optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
        self.batches = enumerate(self.loader)
        self.it = iter(self.loader)

    def collate(self, samples: list[Any]) -> Any:
        return self._scaled(torch.tensor(samples))

    def _scaled(self, samples: Any) -> Any:
        return samples * self.scale


class Downloads(Rows):
    """A connection of the whole script's, from before the training."""

    def __init__(self) -> None:
        self.files = self._download()

    def _download(self) -> Any:
        return [PAIR[0].fileno()]


class Meta(type):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class Odd(metaclass=Meta):
    pass


def tokenizer() -> Any:
    return package("a_tokenizer", TOKENIZER)["Tokenizer"]()


def writer() -> Any:
    return package("tensorboard", WRITER)["Writer"](PAIR[0], iter([1]), log())


HOLDS = {
    "a tokenizer": lambda: DataLoader(Rows(tokenizer=tokenizer())),
    "a tokenizer in collate_fn": lambda: DataLoader(Rows(), collate_fn=tokenizer()),
    "collate_fn of the trainer": lambda: Trainer().loader,
    "the trainer": lambda: DataLoader(Rows(trainer=Trainer())),
    "a partial of the trainer": lambda: DataLoader(Rows(), collate_fn=functools.partial(isinstance, Trainer())),
    "its own loader": lambda: DataLoader(Rows(loader=DataLoader(Rows()), it=iter(DataLoader(Rows())))),
    "a writer": lambda: DataLoader(Rows(writer=writer())),
    "a connection for downloads": lambda: DataLoader(Downloads()),
    "generators of numbers": lambda: DataLoader(Rows(rng=numpy.random.default_rng(1), torch=torch.Generator())),
    "a model": lambda: DataLoader(Rows(model=torch.nn.Linear(2, 2))),
    "a class that is not equal to itself": lambda: DataLoader(Rows(odd=Odd(), odds=[Odd()])),
}


@pytest.mark.parametrize("what", HOLDS)
def test_what_it_holds_harms_nobody(what: str) -> None:
    loader = HOLDS[what]()
    assert WATCH.look(loader, GLANCE) == NOTHING
    assert WATCH.look(loader) == NOTHING


def test_what_is_written_too_and_stands_at_its_end_is_a_note() -> None:
    found = WATCH.look(DataLoader(Rows(log=log())))
    assert found.refused is None and "unless they open their own" in str(found.note)


def test_a_collate_that_does_use_a_file_of_its_trainer_is_refused() -> None:
    class Reads(Trainer):
        file: Any = None

        def collate(self, samples: list[Any]) -> Any:
            return self._read()

        def _read(self) -> Any:
            return self.file.read(1)

    trainer = Reads()
    with Path(__file__).open() as trainer.file:
        assert "(file: test_innocent.py)" in str(WATCH.look(trainer.loader).refused)


def test_of_open_files_only_those_that_the_dataset_names_are_told_of() -> None:
    class InC:
        __slots__ = ()

    with Path(__file__).open("rb") as file:
        file.read(8)
        assert WATCH.look(DataLoader(Rows(opaque=InC()))) == NOTHING
        note = WATCH.look(DataLoader(Rows(opaque=InC(), path=__file__))).note
    assert str(note).startswith("test_innocent.py is open and read here")


def test_a_long_name_is_told_by_its_ends() -> None:
    assert shortened("a.b.c.d") == "a.b.c.d"
    assert shortened("a.b.c.d.e.f") == "a.b.….e.f"
    (found,) = [path for _, path, _ in Reached(Rows(many={"k" * 10**6: []}), THOROUGH) if "many[" in path]
    assert len(found) < 40


@pytest.mark.parametrize("kind", [dict.fromkeys, set, frozenset, list, tuple])
def test_what_is_large_is_neither_copied_nor_walked(kind: Any) -> None:
    dataset = Rows(data=kind(range(1_000_000)))
    loader = DataLoader(dataset)
    tracemalloc.start()
    for limits, most in ((GLANCE, 100_000), (THOROUGH, 20_000_000)):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        WATCH.look(loader, limits)
        DatasetWatch(torch.nn.Module, time.perf_counter_ns).look_at(dataset)
        assert tracemalloc.get_traced_memory()[1] - before < most
    tracemalloc.stop()


@pytest.mark.parametrize("limits", [GLANCE, THOROUGH])
def test_there_is_an_end_to_what_is_looked_at_in_all(limits: Any) -> None:
    reached = Reached(Rows(data=[list(range(10_000)) for _ in range(200)]), limits)
    assert len(list(reached)) < limits.things
    assert -limits.items <= reached._left


# ---- what a dataset does to itself ----


@dataclasses.dataclass
class Sample:
    x: int
    y: int = 0


class Reader:
    def __init__(self) -> None:
        self.position = 0

    def read(self, index: int) -> int:
        self.position = index
        return index


class Counted:
    calls = 0

    @property
    def last(self) -> int:
        return self._last

    @last.setter
    def last(self, value: int) -> None:
        self._last = value


class Doing(Rows):
    """One thing that a dataset may do to itself as it is read."""

    def __init__(self, do: Any) -> None:
        self.do, self.reader, self.own, self.counted = do, None, Reader(), Counted()
        self.cache: dict[int, Any] = {}
        self.counted._last = 0

    @functools.cached_property
    def index(self) -> list[int]:
        return [1]

    def __getitem__(self, index: int) -> Any:
        return self.do(self, index)


def opens_late(it: Any, at: int) -> Any:
    it.reader = it.reader or Reader()
    return it.reader.read(at)


def another(it: Any, at: int) -> None:
    it.own = Reader()


def keeps(it: Any, at: int) -> None:
    it.cache[at] = Sample(at)


def kept_again(it: Any, at: int) -> None:
    it.cache[0] = Sample(at)


def of_its_part(it: Any, at: int) -> None:
    it.own.position = at


def counts(it: Any, at: int) -> None:
    it.counted.calls += 1
    it.counted.last = at


DOES = {
    "cached_property": lambda it, at: it.index,
    "a cache of objects": keeps,
    "one object at a time": kept_again,
    "a reader opened late": opens_late,
    "another reader": another,
    "an attribute of its part": of_its_part,
    "by a property": counts,
    "setattr": lambda it, at: setattr(it, "k%d" % at, at),
    "__dict__": lambda it, at: it.__dict__.update(k=at),
}


@pytest.mark.parametrize("what", DOES)
def test_what_it_does_to_itself_is_not_the_loops_doing(what: str) -> None:
    dataset = Doing(DOES[what])
    whole = Subset(dataset, [1])
    seen = DatasetWatch(torch.nn.Module, lambda: 0)
    assert dataset.own.read(0) == 0
    seen.look_at(whole)
    for at in range(3):
        dataset[at]
    seen.look_within(whole)
    seen.look_at(whole)
    assert (seen.restless, seen.stale) == (None, None)


def test_a_part_is_left_out_by_its_whole_name() -> None:
    dataset = Rows(net=torch.nn.Linear(1, 1), network=Reader())
    seen = DatasetWatch(torch.nn.Module, lambda: 0)
    seen.look_at(dataset)
    dataset.network.position = 3  # type: ignore[attr-defined]
    seen.look_within(dataset)
    assert seen.restless == "network.position"


# ---- who pays, and who hears of it ----


def test_a_look_that_fails_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise TypeError("unhashable type: 'Meta'")

    monkeypatch.setattr(Reached, "__iter__", fails)
    with Harness({1: {"num_workers": 1}}) as harness:
        guard = Guard(lambda: False)
        harness.mechanism.run = guard.run
        loader = DataLoader(Rows(), batch_size=4)
        for _ in range(2):
            assert [int(each) for batch in loader for each in batch] == list(range(16))
        control = harness.control(loader)
        assert control.in_force.num_workers == 1
        assert "could not be looked at" in str(control.refusals()["num_workers"].note)
    assert set(guard.reasons) == {"dataset", "held"}


def test_nothing_is_looked_at_closely_where_no_workers_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    look = HeldWatch.look

    def counted(self: Any, given: Any, limits: Any = THOROUGH) -> Any:
        looks.append(limits)
        return look(self, given, limits)

    monkeypatch.setattr(HeldWatch, "look", counted)
    monkeypatch.setattr("cockpit.probe.sharing.JUST_NOW_NS", 60 * 10**9)  # one boundary, however busy the machine is
    with Harness() as harness:
        loader = DataLoader(Rows(), batch_size=2)
        iter(loader)
        control = harness.control(loader)
        for asked in ({}, {"num_workers": 0}, {"num_workers": "script"}, {"in_order": True}):
            control.plan(asked)
        assert looks == [GLANCE]
        group = control.plan({"num_workers": 2})
        for asked in ({"prefetch_factor": 3}, {"persistent_workers": True}, {"num_workers": 1}):
            group = control.plan(asked, base=group)
        assert looks == [GLANCE, THOROUGH]  # all of one boundary
        control.plan({"num_workers": 2}, now=True)
        assert looks == [GLANCE, THOROUGH, THOROUGH]


def test_functions_that_are_reached_are_those_that_reading_calls() -> None:
    names = {thing.__name__ for thing, _, _ in Reached(Downloads(), THOROUGH) if type(thing) is FunctionType}
    assert names == {"__len__", "__getitem__"}


def test_another_threads_file_may_close_at_any_time() -> None:
    over = threading.Event()
    number = os.open(__file__, os.O_RDONLY)
    file = os.fdopen(number, "rb")

    def close() -> None:
        file.close()
        over.set()

    thread = threading.Thread(target=close)
    thread.start()
    WATCH.look(DataLoader(Rows(file=file)))
    thread.join()
    assert over.is_set() and WATCH.look(DataLoader(Rows(file=file))) == NOTHING

"""What workers of ours send stays as it was when it was made; what cannot be sent as the same thing is no batch."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from cockpit.probe.sending import Sending, instead_of, pickled
from tests.probe.swap_harness import Harness

BIG = torch.arange(200_000.0)


class Held:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


class Marked(torch.Tensor):
    """As torchvision's are: a tensor, and a class."""


FILLED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "a tensor": (torch.ones(9), lambda it: it.zero_()),
    "one in shared memory": (torch.ones(9).share_memory_(), lambda it: it.zero_()),
    "of a class": (torch.ones(9).as_subclass(Marked), lambda it: it.zero_()),
    "of NumPy's memory": (torch.from_numpy(numpy.ones(9)), lambda it: it.zero_()),
    "a row of much": (BIG.clone()[7:9], lambda it: it.zero_()),
    "a column of much": (BIG.clone().view(-1, 100)[:, 3], lambda it: it.zero_()),
    "a row that is read backwards": (BIG.clone().view(100, -1)[3:5].t(), lambda it: it.zero_()),
    "an array": (numpy.ones(9), lambda it: it.fill(0)),
    "a list": ([1, 2], lambda it: it.clear()),
    "text being read": (bytearray(b"12"), lambda it: it.clear()),
}


@pytest.mark.parametrize("what", FILLED)
def test_a_buffer_that_is_filled_anew_does_not_change_what_was_sent(what: str) -> None:
    buffer, fill = FILLED[what]
    before = buffer.clone() if isinstance(buffer, torch.Tensor) else type(buffer)(buffer) if what[0] == "t" else None
    before = before if before is not None else buffer.copy()
    stream = pickled([Held(buffer)])
    fill(buffer)
    (arrived,) = pickle.loads(stream)
    assert type(arrived.inside) is type(buffer)
    if isinstance(buffer, torch.Tensor):
        assert torch.equal(arrived.inside, before)
        assert arrived.inside.untyped_storage().nbytes() < 20_000  # not all that it was a part of
    else:
        assert list(arrived.inside) == list(before)


def test_what_shares_memory_within_a_batch_goes_on_to_and_keeps_its_strides() -> None:
    rows = torch.arange(24.0).view(4, 6).t()
    first, second, same = pickle.loads(pickled([rows[:-1], rows[1:], rows]))
    assert (first.stride(), same.stride()) == (rows.stride(), rows.stride())
    second[0] = -1
    assert bool((first[1] == -1).all()) and bool((same[1] == -1).all())
    assert rows.min() == 0


class Plain:
    pass


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    first: int


MISSING, ONE, PAIR = object(), Plain(), Pair(1)


@pytest.mark.parametrize(("what", "name"), [(MISSING, "an object()"), (ONE, "an instance of Plain")])
def test_what_is_told_by_being_the_same_one_is_not_sent_as_another(what: Any, name: str) -> None:
    with pytest.raises(RuntimeError) as told:
        pickled({"y": [1, what]})
    assert str(told.value).startswith("a batch holds %s, which is told by being the same one" % name)


def test_what_comes_out_as_itself_or_is_told_by_its_value_is_sent() -> None:
    colour, kind, pair, plain, none = pickle.loads(pickled([Colour.RED, Plain, PAIR, Plain(), None]))
    assert (colour, kind, pair, none) == (Colour.RED, Plain, PAIR, None) and type(plain) is Plain


def test_what_torchs_own_collate_makes_is_left_alone() -> None:
    assert instead_of(torch, default_collate, batched=True) is default_collate
    assert type(instead_of(torch, default_collate, batched=False)) is Sending


class Buffer(Dataset):
    """Returns what it has filled anew; so does what makes a batch of it."""

    def __init__(self) -> None:
        self.row, self.batch = torch.zeros(3), torch.zeros(4, 3)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return self.row.fill_(index)

    def collate(self, samples: list[Any]) -> Any:
        return torch.stack([row.clone() for row in samples], out=self.batch)


@pytest.mark.parametrize("how", ["each", "batched"])
def test_workers_serve_a_buffer_as_the_training_itself_does(how: str) -> None:
    dataset = Buffer()
    if how == "each":
        loader = DataLoader(dataset, batch_size=None)
    else:
        loader = DataLoader(dataset, batch_size=1, collate_fn=lambda rows: dataset.collate(rows * 4))
    with Harness(now={(0, 3): {"num_workers": 2}, (0, 20): {"num_workers": 0}, (0, 30): {"num_workers": 1}}) as harness:
        served = [float(batch.flatten()[0]) for batch in loader]
    assert served == [float(at) for at in range(40)] and len(harness.swaps) == 3 and not harness.notices

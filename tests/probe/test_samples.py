"""How many samples a batch holds: told from what is there, or not at all."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple

import pytest
import torch

from cockpit.probe.samples import SIZES, counting, first_dimension

Pair = namedtuple("Pair", "x y")


class Ragged:
    """As a nested tensor does: no such number, and it says so loudly."""

    @property
    def shape(self):
        raise RuntimeError("no sizes")


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (torch.ones(5, 2), 5),
        ((torch.ones(5, 2), torch.ones(5)), 5),
        ([torch.tensor(1.0), torch.ones(7)], 7),
        ({"image": torch.ones(3, 1), "label": torch.ones(3)}, 3),
        (OrderedDict(ids=["a", "b"], x=torch.ones(2, 2)), 2),
        (UserDict(x=torch.ones(6)), 6),
        (Pair(torch.ones(4, 1), 0), 4),
        ({"deep": [{"x": torch.ones(9)}]}, 9),
        (["a", "b"], None),
        (torch.tensor(3.0), None),
        (object(), None),
        (None, None),
        ("text", None),
        ({}, None),
        (Ragged(), None),
    ],
)
def test_the_first_tensor_tells(data, number):
    assert first_dimension(data, 3) == number


def test_the_samplers_own_index_batch_tells_where_there_is_one():
    class Iterator:
        def __init__(self, indices):
            self.indices = iter(indices)

        def _next_index(self):
            return next(self.indices)

    iterator = Iterator([[1, 2, 3], (4, 5), 6, torch.tensor([7, 8])])
    counted = counting(Iterator._next_index, lambda: False)
    while True:
        try:
            counted(iterator)
        except StopIteration:
            break
    assert list(iterator.__dict__[SIZES]) == [3, 2, None, None]
    assert counting(Iterator._next_index, lambda: True)(Iterator([[1]])) == [1]

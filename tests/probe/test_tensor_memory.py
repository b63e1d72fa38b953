"""Each part of the probe that tells tensors apart by their memory has the same answer where there is none."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cockpit.probe.handoff.contents import contents_of
from cockpit.probe.kernels.made_for import MadeFor
from cockpit.probe.memory import memory_of
from cockpit.probe.taken import storages_in


class Wraps(torch.Tensor):
    """Has a shape of its own, and what it wraps for a memory."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return "Wraps"

    def __reduce_ex__(self, protocol):
        return Wraps, (self.inner,)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Bare(Wraps):
    """Not even asked for its storage does it say more than that it has none."""

    def untyped_storage(self):
        raise AttributeError("storage")


def fake():
    with FakeTensorMode():
        return torch.ones(4, 2)


WITHOUT = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "wrapping subclass": lambda: Wraps(torch.ones(4, 2)),
    "bare subclass": lambda: Bare(torch.ones(4, 2)),
}
NOWHERE = {
    "empty": lambda: torch.empty(0, 4),
    "meta": lambda: torch.empty(4, 2, device="meta"),
    "fake": fake,
}
KINDS = {**WITHOUT, **NOWHERE}


def test_views_lie_in_one_memory():
    whole = torch.ones(4, 4)
    assert {memory_of(each).address for each in (whole, whole[1:], whole.t(), whole.detach())} == {whole.data_ptr()}
    assert memory_of(torch.ones(4)).address not in (0, memory_of(whole).address)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_memory_is_nobodys_memory(kind):
    tensor = KINDS[kind]()
    warnings.simplefilter("error")  # what it says is heard by the script
    memory = memory_of(tensor)
    assert memory is None if kind in WITHOUT else memory.address == 0
    assert storages_in(torch, [tensor]) == set()
    looks = MadeFor(torch)
    looks.begin(4, 0)
    assert looks._remember(tensor) is None


@pytest.mark.parametrize("kind", ["sparse", "csr", "empty", "meta"])
def test_it_weighs_no_more_than_it_has(kind):
    tensor = KINDS[kind]()
    two = contents_of(torch, [tensor, torch.ones(8)], sums=False)
    assert len(two.tensors) == 2
    assert two.nbytes >= 32 and two.nbytes - contents_of(torch, [torch.ones(8)], sums=False).nbytes <= 64 + 4 * 16

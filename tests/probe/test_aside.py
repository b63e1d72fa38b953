"""What the probe copies for a while comes from no malloc: a training's steps cost the same after it as before.

Looked at in the blocks that are asked for, which repeat: what malloc makes of others, in page faults, is chance.
"""

from __future__ import annotations

import functools
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from cockpit.probe.aside import PIECE, Aside
from cockpit.probe.guard import Guard
from cockpit.probe.handoff.contents import checksum
from cockpit.probe.kernels.keep import Kept

WIDTH, LAYERS = 256, 4
LARGE = 1 << 16
"""Bytes of a block that malloc may come to treat differently."""


class Training:
    """Steps whose blocks are large."""

    def __init__(self, width: int = WIDTH) -> None:
        self.model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
        self.optimizer, self.x = torch.optim.SGD(self.model.parameters(), lr=1e-6), torch.randn(16, width)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()


def blocks_of(work: Callable[[], object]) -> list[int]:
    """Large blocks that were asked of torch's own allocator meanwhile, whoever asked."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    taken = (event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]")
    return sorted(size for size in taken if size >= LARGE)


@pytest.fixture
def matmul_as_before():
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("gradients", ["dropped", "kept"])
def test_a_step_on_trial_takes_the_very_blocks_of_any_other(tmp_path, monkeypatch, matmul_as_before, gradients):
    """Where the change lands, while it settles, where it is kept: the copies, and what is looked at, take none."""
    from watched import watched

    with watched(tmp_path, monkeypatch) as it:
        training = Training()
        monkeypatch.setattr(training.optimizer, "zero_grad", functools.partial(
            training.optimizer.zero_grad, set_to_none=gradients == "dropped"))  # fmt: skip
        for _ in range(3):
            training.step()
        bare = blocks_of(training.step)
        assert bare or gradients == "kept"
        it.ask("c1", now=True, matmul="high")
        for _ in range(4):
            assert blocks_of(training.step) == bare
        assert it.recorder.trial is not None and it.recorder.trial.snapshot is not None
        it.probe.landing.trials.hear({"m": "kept", "id": "c1"})
        for _ in range(2):
            assert blocks_of(training.step) == bare
        assert it.recorder.trial is None


def test_what_a_forward_may_change_and_what_is_written_down_take_none():
    model, x = nn.BatchNorm1d(LARGE), torch.randn(4, LARGE)
    kept: list[object] = []
    run = lambda part, work, *args: work(*args)  # noqa: E731
    assert blocks_of(lambda: kept.append(Kept(torch, model, ((x,), {"mask": x[:1]}), run))) == []
    assert blocks_of(lambda: checksum(torch, x.t())) == []


KINDS = {
    "plain": lambda: torch.randn(7, 5),
    "permuted": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "every-other": lambda: torch.randn(8, 8)[::2, ::2],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "conjugated": lambda: torch.randn(3, 2, dtype=torch.complex64).conj(),
    "scalar": lambda: torch.tensor(3, dtype=torch.int64),
    "empty": lambda: torch.empty(0, 3),
    "bf16": lambda: torch.randn(9).bfloat16(),
    "bool": lambda: torch.randn(9) > 0,
    "larger-than-a-piece": lambda: torch.randn(PIECE // 4 + 3),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "trained": lambda: nn.Parameter(torch.randn(3)),
}


def test_a_copy_of_any_kind_is_its_own():
    """Side by side in one memory: none is written over by the next, nor by what becomes of the original."""
    aside, made = Aside(torch), [make() for make in KINDS.values()]
    twins = [each.detach().clone() for each in made]
    copies = [aside.copy(each) for each in made]
    packed = [aside.copy(each, packed=True) for each in made if each.layout is torch.strided]
    for each in made:
        if each.layout is torch.strided and each.numel() and each._is_view() is False:
            each.data.zero_()
    for name, twin, copy in zip(KINDS, twins, copies, strict=True):
        assert torch.equal(copy.to_dense(), twin.to_dense()) and copy.dtype == twin.dtype, name
        assert copy.stride() == twin.stride() or name == "sparse", name
        assert not copy.requires_grad and copy.data_ptr() % 8 == 0 if name != "sparse" else True, name
    dense = [twin for twin in twins if twin.layout is torch.strided]
    assert all(copy.is_contiguous() and torch.equal(copy, twin) for copy, twin in zip(packed, dense, strict=True))
    assert [checksum(torch, copy) for copy in packed] == [checksum(torch, twin) for twin in dense]


def test_the_memory_goes_back_with_the_last_copy():
    """To the kernel, whole; and what nobody wrote to was never taken."""
    mapped = lambda: int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # noqa: E731
    before = mapped()
    tensor = torch.empty(64 * PIECE, dtype=torch.uint8)
    held = mapped()
    aside = Aside(torch)
    copies = [aside.copy(tensor), aside.copy(torch.ones(3))]
    assert mapped() - held >= 64 * PIECE
    del aside
    copies.pop(0)
    assert mapped() - held < 8 * PIECE and copies[0].tolist() == [1.0, 1.0, 1.0]
    del tensor
    assert mapped() - before < 8 * PIECE


def test_no_memory_is_told_as_such(monkeypatch):
    import cockpit.probe.aside as aside

    def refuses(*args, **kwargs):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(aside._mmap, "mmap", refuses)
    with pytest.raises(MemoryError, match="Cannot allocate"):
        Aside(torch).empty((3,), torch.float32, 12)
    assert Aside(torch).copy(torch.ones(3)).tolist() == [1.0] * 3, "then it is copied as torch copies"


TRANSFORMS = {
    "vmap": lambda work: torch.func.vmap(work)(torch.ones(2, 3)),
    "grad": lambda work: torch.func.grad(lambda x: work(x).sum())(torch.ones(3)),
    "vmap of grad": lambda work: torch.func.vmap(torch.func.grad(lambda x: work(x).sum()))(torch.ones(2, 3)),
    "jvp": lambda work: torch.func.jvp(work, (torch.ones(3),), (torch.ones(3),)),
    "functionalize": lambda work: torch.func.functionalize(work)(torch.ones(3)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_in_a_transform_of_torchs_what_is_copied_is_copied_all_the_same(transform):
    """A forward may run in one: whatever our copies meet there, the script's own call goes through."""

    class Scaled(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.register_buffer("scale", scale)

    run = Guard(lambda: False).run
    seen = []

    def work(x):
        kept = run("kept", Kept, torch, Scaled(x * 2), (x,), run)
        copy = run("copy", Aside(torch).copy, x)
        seen.append((kept is None, copy is None))
        return x * 3

    TRANSFORMS[transform](work)
    assert seen == [(False, False)]

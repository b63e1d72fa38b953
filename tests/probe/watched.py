"""A training watched inside the test's own process: the real torch, patched by the real probe, under a clock of ours.

``watched()`` patches, ``spend`` lets time pass, ``heard`` is what the engine would have been told. Everything is put
back afterwards. No thread runs and no socket is opened: ``beat`` is called by the test.
"""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from cockpit.model.names import ENV_RUN
from cockpit.probe import install as installing
from cockpit.probe.probe import Probe

MS = 1_000_000


class Clock:
    """Nanoseconds that pass only when somebody spends them, and one with each look (so that no two are equal)."""

    def __init__(self) -> None:
        self.now = 10**9

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def spend(self, ms: float) -> None:
        self.now += int(ms * MS)


class Watched:
    """The probe, its clock, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.probe = Probe(torch, environ={ENV_RUN: str(folder)}, clock=self.clock)
        self.probe.pulse.wanted = False
        self.heard: list[dict[str, Any]] = []
        self.probe.link.say = self.heard.append  # type: ignore[method-assign]
        self.probe.link.pump = lambda: []  # type: ignore[method-assign]

    @property
    def recorder(self) -> Any:
        return self.probe.recorder

    def spend(self, ms: float) -> None:
        self.clock.spend(ms)

    def beat(self) -> None:
        self.probe.beat()
        assert not self.probe.guard.reasons, self.probe.guard.reasons

    def of(self, kind: str, **fields: object) -> list[dict[str, Any]]:
        self.beat()
        return [m for m in self.heard if m["m"] == kind and all(m.get(k) == v for k, v in fields.items())]

    def roles(self) -> dict[str, str]:
        return {name: record.role for name, record in self.probe.registry.records.items()}

    def steps(self) -> list[dict[str, float]]:
        """Each ended step as differences of the totals, in ms; taken from the recorder's own marks."""
        found, before = [], None
        for mark in list(self.recorder.done):
            if mark.step is not None and before is not None:
                names = ("lived", "wait", "start", "forward", "backward", "optimizer")
                row = {n: round((getattr(mark, n + "_ns") - getattr(before, n + "_ns")) / MS, 2) for n in names}
                found.append({**row, "samples": mark.samples - before.samples, "step": mark.step})
            before = mark
        return found

    def ask(self, name: str, now: bool = False, loader: str | None = None, **knobs: object) -> None:
        self.probe.asks.receive({"m": "ask", "id": name, "knobs": knobs, "now": now, "loader": loader})


def keep_torch(monkeypatch: Any) -> None:
    """Everything that the probe patches, and what it registers with the interpreter, is put back at the end."""
    module, optim = sys.modules["torch.utils.data.dataloader"], sys.modules["torch.optim.optimizer"]
    for owner, name in (
        (module.DataLoader, "__init__"), (module.DataLoader, "__iter__"), (module.DataLoader, "__len__"),
        (module._BaseDataLoaderIter, "__next__"), (torch.optim.lr_scheduler.LRScheduler, "__init__"),
        (module._BaseDataLoaderIter, "_next_index"), (torch.autograd, "backward"), (nn.Module, "__call__"),
        (torch, "save"), (torch.serialization, "save"), (module._MultiProcessingDataLoaderIter, "_shutdown_workers"),
        (torch.autograd, "grad"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(optim, name, OrderedDict(getattr(optim, name)))
    monkeypatch.setattr(installing.os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(installing.atexit, "register", lambda _: None)


@contextlib.contextmanager
def watched(folder: Path, monkeypatch: Any) -> Iterator[Watched]:
    """The probe in place, with all that it patched put back at the end."""
    keep_torch(monkeypatch)
    it = Watched(folder)
    installing.patch(it.probe)
    try:
        yield it
    finally:
        monkeypatch.undo()


class Rows(Dataset):
    """``count`` rows; each fetch spends ``ms``."""

    def __init__(self, it: Watched, count: int = 24, ms: float = 1.0) -> None:
        self.it, self.count, self.ms = it, count, ms

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.it.spend(self.ms)
        return torch.full((2,), float(index))


class Stream(IterableDataset):
    """The same as a stream."""

    def __init__(self, it: Watched, count: int = 24, ms: float = 1.0) -> None:
        self.it, self.count, self.ms = it, count, ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self.count):
            self.it.spend(self.ms)
            yield torch.full((2,), float(index))


class Slow(nn.Module):
    """A model whose forward spends ``ms``."""

    def __init__(self, it: Watched, ms: float = 10.0, out: int = 1) -> None:
        super().__init__()
        self.inner = nn.Linear(2, out)
        self.it, self.ms = it, ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.it.spend(self.ms)
        return self.inner(x)


class SlowSGD(torch.optim.SGD):
    """An optimizer whose step spends 3 ms."""

    def __init__(self, it: Watched, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.it = it

    def step(self, closure: Any = None) -> Any:
        self.it.spend(3)
        # torch hooks a class's step when its first optimizer is made: another test's plain SGD must not count here
        step = torch.optim.SGD.step
        return (step.__wrapped__ if getattr(step, "hooked", False) else step)(self, closure)


def loader_of(it: Watched, count: int = 24, **more: Any) -> DataLoader:
    return DataLoader(Rows(it, count), batch_size=4, **more)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()

"""Drives the kernel knobs on real torch without the probe: a slot as the probe's is, and models of many shapes."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import torch
from torch import nn

from cockpit.probe.kernels.control import Kernels


class Slot:
    """As in ``probe.roots``: calls the root's kernels, holds its module weakly, travels as None."""

    def __init__(self, module: nn.Module, kernels: Any) -> None:
        self.module, self.kernels = weakref.ref(module), kernels

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.kernels.called = True
        return self.kernels.call(self.module(), args, kwargs)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return type(None), ()


def control(*modules: nn.Module, world: int = 1, **known: Any) -> Kernels:
    """The knobs of these roots."""
    kernels = Kernels(torch, time.perf_counter_ns, threading.get_ident, lambda: world, **known)
    for module in modules:
        root = kernels.adopt(module, module.__dict__.get("_compiled_call_impl"))
        module.__dict__["_compiled_call_impl"] = Slot(module, root)
    return kernels


def row(kernels: Kernels, name: str) -> Any:
    return next(found for found in kernels.reports() if found.name == name)


class Net(nn.Module):
    """Linear, batch norm, dropout, linear."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.one, self.norm, self.drop, self.two = (
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(dropout), nn.Linear(16, 4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.drop(self.norm(self.one(x)).relu()))


def net(dropout: float = 0.0) -> Net:
    torch.manual_seed(0)
    return Net(dropout)


def batch(rows: int = 6, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))


def train(module: nn.Module, steps: int = 5, first: int = 0) -> list[float]:
    """The losses of plain steps; dropout draws from the global generator."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = module(batch(seed=step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

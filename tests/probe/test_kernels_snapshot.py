"""The copy of a training's state: put back in place to the bit, whatever the optimizer keeps, only where it fits."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from kernels_harness import Net, batch, net
from torch import nn

from cockpit.probe.kernels import snapshot
from cockpit.probe.kernels.snapshot import Room, Snapshot
from cockpit.probe.preflight import Machine

CPU = torch.device("cpu")
HERE = Room({CPU: CPU})
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=4),
}


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, count: int = 3) -> list[float]:
    losses = []
    for number in range(first, first + count):

        def closure(number: int = number) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(batch(seed=number)).square().mean()
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
    return losses


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("before", [0, 2], ids=["fresh", "in-use"])
def test_steps_after_it_was_put_back_are_those_of_a_training_that_never_went_wrong(make, before):
    """Spoilt thoroughly in between; the very tensors and dicts stay."""
    model, twin = net(), net()
    optimizer, twins = make(list(model.parameters())), make(list(twin.parameters()))
    steps(model, optimizer, 0, before)
    steps(twin, twins, 0, before)
    taken = Snapshot(torch, [model], [optimizer], HERE)
    places = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    kept = {id(t) for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)}
    states = {id(state) for state in optimizer.state.values()}
    steps(model, optimizer, 100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    assert taken.put_back() == []
    assert steps(model, optimizer, 7) == steps(twin, twins, 7)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == places
    if before:
        assert states == {id(state) for state in optimizer.state.values()}
        now = {id(t) for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)}
        assert kept <= now or isinstance(optimizer, torch.optim.LBFGS)  # which makes its own anew each step


class Odd(torch.optim.Optimizer):
    """Keeps plain numbers, nested things, tensors that it replaces, and something of its own."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                mean = state.get("mean", torch.zeros_like(p))
                state["mean"] = mean * 0.9 + p.grad * 0.1
                state["steps"] = state.get("steps", 0) + 1
                state.setdefault("nested", {"history": [], "pair": (torch.zeros(()), 1.0)})["history"].append(
                    p.grad.sum()
                )
                state.setdefault("own", object())
                state["nested"]["pair"][0].add_(1)
                p.sub_(state["mean"] * group["lr"])


def test_an_optimizer_of_any_kind():
    model, twin = net(), net()
    optimizer, twins = Odd(model.parameters()), Odd(twin.parameters())
    steps_of = lambda m, o, first: [_plain_step(m, o, n) for n in range(first, first + 2)]  # noqa: E731
    steps_of(model, optimizer, 0), steps_of(twin, twins, 0)
    taken = Snapshot(torch, [model], [optimizer], HERE)
    steps_of(model, optimizer, 50)
    assert taken.put_back() == ["the optimizer's object"]
    state, other = optimizer.state[model.one.weight], twins.state[twin.one.weight]
    assert state["steps"] == other["steps"] == 2 and len(state["nested"]["history"]) == 2
    assert state["nested"]["pair"][0] == 2 and torch.equal(state["mean"], other["mean"])
    assert steps_of(model, optimizer, 9) == steps_of(twin, twins, 9)


def _plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> float:
    optimizer.zero_grad()
    loss = model(batch(seed=number)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_scaler_in_use_goes_back_in_place():
    scaler, off = torch.amp.GradScaler("cpu", init_scale=64.0), torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(torch.ones(()))
    there = scaler._scale
    taken = Snapshot(torch, [net()], [], HERE)
    scaler._scale.fill_(2.0)
    scaler._growth_tracker.fill_(9)
    taken.put_back()
    assert scaler._scale is there and scaler.get_scale() == 64.0 and scaler._get_growth_tracker() == 0
    assert not off.is_enabled()


def test_frozen_parameters_cost_nothing_and_are_named_if_they_have_changed():
    model = net()
    model.one.weight.requires_grad_(False)
    taken = Snapshot(torch, [model], [], HERE)
    assert taken.put_back() == []
    with torch.no_grad():
        model.one.weight.add_(1)
    assert taken.put_back() == ["1 frozen parameter"]
    assert model.one.weight not in set(snapshot.trained([model], []))


def test_what_only_the_optimizer_knows_is_copied_too():
    model, temperature = net(), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], lr=0.1)
    taken = Snapshot(torch, [model], [optimizer], HERE)
    with torch.no_grad():
        temperature.fill_(7)
    taken.put_back()
    assert temperature.tolist() == [1, 1, 1]


def test_it_keeps_nothing_alive():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    steps(model, optimizer, 0)
    taken = Snapshot(torch, [model], [optimizer], HERE)
    gone = [weakref.ref(thing) for thing in (model, optimizer, model.one.weight)]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    assert taken.put_back() == []


def machine(left):
    return lambda workers: Machine(None, None, left, None)


@pytest.mark.parametrize(
    ("left", "size", "reason"),
    [
        (4 << 30, 1 << 30, None),
        (4 << 30, (1 << 30) + 4096, "a copy of its state needs 1.1 GB, and 1.1 GB may be taken"),
        (400 << 30, 50 << 30, "a copy of its state (54 GB) would take about 67 s"),
        (None, 1, "a copy of its state needs 1 B, and it is not known what is free"),
    ],
    ids=["fits", "too-large", "too-slow", "unknown"],
)
def test_only_where_it_fits(monkeypatch, left, size, reason):
    monkeypatch.setattr(snapshot, "look", machine(left))
    found = snapshot.room(torch, {CPU: size})
    assert found.reason == reason
    assert found.where == ({} if reason else {CPU: CPU})


def test_a_full_gpu_is_copied_to_the_machines_memory(monkeypatch):
    monkeypatch.setattr(snapshot, "look", machine(8 << 30))
    gpu, free = torch.device("cuda", 0), {"bytes": 4 << 30}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free["bytes"], 0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    assert snapshot.room(torch, {gpu: 1 << 30, CPU: 1 << 20}).where == {gpu: gpu, CPU: CPU}
    free["bytes"] = 1 << 30
    assert snapshot.room(torch, {gpu: 1 << 30, CPU: 1 << 20}).where == {gpu: CPU, CPU: CPU}
    assert snapshot.room(torch, {gpu: 3 << 30}).reason == "a copy of its state needs 3.2 GB, and 2.1 GB may be taken"


def test_sizes_are_those_of_what_is_there():
    model = Net()
    plain = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    optimizer = torch.optim.Adam(model.parameters())
    assert snapshot.sizes(torch, snapshot.trained([model], [optimizer]), [optimizer]) == {CPU: plain}
    steps(model, optimizer, 0)
    twice = sum(8 * p.numel() + 4 for p in model.parameters())
    found = snapshot.sizes(torch, snapshot.trained([model], [optimizer]), [optimizer, optimizer])
    assert found == {CPU: plain + twice}

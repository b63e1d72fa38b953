"""A loop that is made for one batch size is found out before another one reaches it; one that is not is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from watched import SlowSGD, loader_of

from cockpit.probe.kernels import rings
from cockpit.probe.kernels.made_for import STEPS, MadeFor

SIZE, FEATURES = 6, 8
"""Of a batch; SIZE is no other dimension of anything here, but where a test says so."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(FEATURES, 5, batch_first=True), nn.Linear(5, 1)
        self.register_buffer("table", torch.zeros(SIZE, 5))

    def forward(self, x: torch.Tensor, h: Any = None, **more: Any) -> tuple[torch.Tensor, Any]:
        if isinstance(h, (tuple, dict)):
            h = h[0] if isinstance(h, tuple) else h["h"]
        out, after = self.rnn(x, h)
        return torch.sigmoid(self.head(out[:, -1])), after


class Loop:
    """What a training does in its steps, looked at as the probe does."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net, self.made_for = Net(), MadeFor(torch)
        self.kept: dict[str, Any] = {
            "h": torch.zeros(1, SIZE, 5), "ones": torch.ones(SIZE, 1), "static": torch.zeros(SIZE, 3, FEATURES)
        }  # fmt: skip

    def call(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = self.net(x, *args, **kwargs)
        self.made_for.called(self.net, (x, *args), kwargs, result)
        return result

    def back(self, loss: torch.Tensor) -> None:
        self.made_for.back(loss)
        loss.backward()

    def run(self, step: Any, steps: int = STEPS) -> str | None:
        self.made_for.begin(SIZE, 10)
        for number in range(10, 10 + steps):
            step(self, torch.randn(SIZE, 3, FEATURES), torch.rand(SIZE, 1))
            if not self.made_for.next_step(number + 1):
                break
        return self.made_for.found.get(SIZE)


def hidden_kept(loop, x, y):
    out, h = loop.call(x, loop.kept["h"].detach())
    loop.kept["h"] = h
    loop.back((out - y).square().mean())


def hidden_in_a_tuple(loop, x, y):
    out, h = loop.call(x, (loop.kept["h"], None))
    loop.kept["h"] = h.detach()
    loop.back((out - y).square().mean())


def hidden_by_name(loop, x, y):
    out, h = loop.call(x, h={"h": loop.kept["h"]})
    loop.kept["h"] = h.data
    loop.back((out - y).square().mean())


def constant_handed_in(loop, x, y):
    out, _ = loop.call(x, label=loop.kept["ones"])
    loop.back((out - y).square().mean())


def constant_labels(loss):
    def step(loop, x, y):
        out, _ = loop.call(x)
        loop.back(loss(out, loop.kept["ones"]))

    return step


def static_buffer(loop, x, y):
    loop.kept["static"].copy_(x)
    out, _ = loop.call(loop.kept["static"])
    loop.back((out - y).square().mean())


def view_of_a_buffer(loop, x, y):
    out, _ = loop.call(x, loop.kept["h"][:, :, :])
    loop.back((out - y).square().mean())


MADE_FOR_ONE = {
    "a hidden state": hidden_kept,
    "one in a tuple": hidden_in_a_tuple,
    "one by name": hidden_by_name,
    "a constant handed to the model": constant_handed_in,
    "constant labels, bce": constant_labels(F.binary_cross_entropy),
    "constant labels, mse": constant_labels(F.mse_loss),
    "constant labels, with weight": constant_labels(lambda out, y: 0.5 * F.binary_cross_entropy(out, y) + 1.0),
    "a buffer that batches are copied into": static_buffer,
    "a view": view_of_a_buffer,
}


@pytest.mark.parametrize("step", MADE_FOR_ONE.values(), ids=MADE_FOR_ONE)
def test_what_is_made_for_one_size_is_seen(step: Any) -> None:
    found = Loop().run(step)
    assert found is not None and found.startswith(f"the loop is made for batches of {SIZE}: ")


# ---- rings that batches are written into ----

RING = 4 * SIZE


class Ring(nn.Module):
    def __init__(self, write: Any) -> None:
        super().__init__()
        self.inner, self.write, self.at = nn.Linear(FEATURES, 5), write, 0
        self.norm = nn.BatchNorm1d(RING)
        self.register_buffer("queue", torch.zeros(5, RING))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        self.norm(out.detach().mean(1).repeat(3, RING // SIZE))  # changes as many numbers, all in each step
        self.write(self, out.detach())
        return out


def in_slices(ring: Ring, keys: torch.Tensor) -> None:
    ring.queue[:, ring.at : ring.at + len(keys)] = keys.t()
    ring.at = (ring.at + len(keys)) % RING


def by_shift(ring: Ring, keys: torch.Tensor) -> None:
    """As many at the front, all others moved: takes any size."""
    ring.queue.copy_(torch.cat([keys.t(), ring.queue[:, : -len(keys)]], 1))


def by_sample(ring: Ring, keys: torch.Tensor) -> None:
    ring.queue[:, torch.randperm(RING)[: len(keys)]] = keys.t()


def by_average(ring: Ring, keys: torch.Tensor) -> None:
    ring.queue.mul_(0.9).add_(keys.mean())


def run_ring(write: Any) -> MadeFor:
    torch.manual_seed(0)
    model, looked = Ring(write), MadeFor(torch)
    looked.begin(SIZE, 10)
    for number in range(10, 10 + STEPS):
        x = torch.randn(SIZE, FEATURES)
        looked.called(model, (x,), {}, model(x))
        looked.next_step(number + 1)
    return looked


def test_a_ring_that_is_written_by_batches_is_seen_and_what_else_changes_is_not() -> None:
    looked = run_ring(in_slices)
    assert looked.rings.found == {SIZE: (RING, "queue")} and not looked.rings._seen
    assert not any(run_ring(write).rings.found for write in (by_shift, by_sample, by_average))


def test_sizes_that_divide_a_ring_can_be_had_and_others_not() -> None:
    found = (RING, "queue")
    assert [size for size in (1, 4, 5, 8, 12, 16, 24, 48) if rings.unfit(found, size) is None] == [1, 4, 8, 12, 24]
    assert "a ring of 24 (queue)" in str(rings.unfit(found, 5)) and rings.unfit(None, 5) is None


def plain(loop, x, y):
    out, _ = loop.call(x, None)
    loop.back(F.binary_cross_entropy(out, y))


def made_of_each_batch(loop, x, y):
    out, _ = loop.call(x.clone(), torch.zeros(1, len(x), 5), noise=torch.randn(len(x), 2))
    loop.back(F.binary_cross_entropy(out, torch.full((len(x), 1), 1.0)))


def twice_in_a_step(loop, x, y):
    out, h = loop.call(x, None)
    again, _ = loop.call(x, h)
    loop.back(F.mse_loss(out + again, y))


def its_own_parameters_and_buffers(loop, x, y):
    out, _ = loop.call(x, None, table=loop.net.table, weight=nn.Parameter(torch.ones(SIZE)))
    loop.back((out - y).square().mean())


def read_ahead(loop, x, y):
    ahead, loop.kept["next"] = loop.kept.pop("next", x.clone()), x
    out, _ = loop.call(ahead, None)
    loop.back(F.mse_loss(out, y))


def another_dimension(loop, x, y):
    """As many steps of time as samples: nobody can tell one from the other."""
    mask = loop.kept.setdefault("mask", torch.ones(SIZE, SIZE))
    out, _ = loop.call(torch.randn(SIZE, SIZE, FEATURES), None, mask=mask)
    loop.back(F.mse_loss(out, y))


FITS_ANY = {
    "nothing beside the batch": plain,
    "what is made of each batch": made_of_each_batch,
    "twice within a step": twice_in_a_step,
    "parameters and buffers": its_own_parameters_and_buffers,
    "batches that were read ahead": read_ahead,
    "another dimension of that size": another_dimension,
}


@pytest.mark.parametrize("step", FITS_ANY.values(), ids=FITS_ANY)
def test_what_takes_any_size_is_left_alone(step: Any) -> None:
    assert Loop().run(step) is None


def test_a_loss_that_is_checkpointed_is_not_computed_again_for_a_look() -> None:
    loop, calls = Loop(), []

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return F.mse_loss(out, y)

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
        out, _ = loop.call(x, None)
        loop.back(checkpoint(loss, out, loop.kept["ones"], use_reentrant=False))

    assert loop.run(step) is None and len(calls) == 2 * STEPS


def test_it_stops_by_itself_and_keeps_no_memory_alive() -> None:
    import weakref

    loop = Loop()
    loop.run(plain, STEPS)
    assert loop.made_for.size is None and not loop.made_for._handed
    loop.made_for.begin(SIZE, 0)
    x = torch.randn(SIZE, 3, FEATURES)
    loop.call(x)
    gone = weakref.ref(x.untyped_storage())
    del x
    assert all(ref.expired() for _, ref in loop.made_for._handed.values()) or gone() is None


# ---- asked for as the engine asks ----


class Stateful(nn.Module):
    """``kept``: its state goes on from step to step; else it is made for each batch."""

    def __init__(self, it: Any, kept: bool) -> None:
        super().__init__()
        self.inner, self.kept, self.it = nn.Linear(2, 3), kept, it

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        self.it.spend(10)
        return (self.inner(x) + h).tanh()


class Training:
    def __init__(self, it: Any, kept: bool = True) -> None:
        self.it, self.loader, self.kept = it, loader_of(it, 24, drop_last=True), kept
        self.model = Stateful(it, kept)
        self.optimizer = SlowSGD(it, self.model.parameters(), lr=0.01)

    def epoch(self, ask: Any = None, at: int = 1) -> list[int]:
        sizes, h = [], torch.zeros(4, 3)
        for number, batch in enumerate(self.loader):
            if number == at and ask is not None:
                ask()
            if not self.kept:
                h = torch.zeros(len(batch), 3)
            self.optimizer.zero_grad()
            h = self.model(batch, h.detach())
            h.square().mean().backward()
            self.optimizer.step()
            sizes.append(len(batch))
            self.it.beat()
        return sizes


def told(it: Any) -> dict[str, Any]:
    loader = it.of("loaders")[-1]["loaders"][0]
    return next(knob for knob in loader["knobs"] if knob["name"] == "batch_size")


@pytest.mark.parametrize("scheduled", [False, True], ids=["asked", "scheduled"])
def test_another_size_is_refused_at_the_boundary_with_what_was_seen(it: Any, scheduled: bool) -> None:
    if scheduled:
        it.probe.asks.start({"at": [{"id": "c1", "when": "epoch", "n": 2, "knobs": {"batch_size": 8}}]})
    training = Training(it)
    assert training.epoch() == [4] * 6
    assert training.epoch(None if scheduled else lambda: it.ask("c1", batch_size=8)) == [4] * 6
    assert training.epoch() == [4] * 6
    said = it.of("change", id="c1")[-1]
    assert (
        said["state"] == "refused"
        and "made for batches of 4: Stateful is called with a tensor of 4×3" in said["reason"]
    )
    assert it.recorder.on_backward is None and not it.probe.one_size.looks
    assert all(root.on_result is None and root.idle for root in it.probe.kernels.roots)
    it.ask("c2", batch_size=2)
    it.beat()
    assert it.of("change", id="c2")[-1]["state"] == "refused", "what was seen once is known"


def test_a_loop_that_takes_any_size_gets_it(it: Any) -> None:
    training = Training(it, kept=False)
    training.epoch()
    training.epoch(lambda: it.ask("c1", batch_size=8))
    assert training.epoch() == [8] * 3
    assert it.of("change", id="c1")[-1]["state"] == "settling"


def test_the_note_tells_of_sizes_that_the_loop_has_been_through(it: Any) -> None:
    training = Training(it, kept=False)
    training.epoch()
    assert "only seen batches of 4" in told(it)["note"]
    training.epoch(lambda: it.ask("c1", batch_size=8))
    training.epoch(lambda: it.beat(), 1)
    assert "only seen batches of 8" not in str([m["loaders"] for m in it.of("loaders")])
    training.epoch()
    assert "only seen" not in told(it)["note"]


def test_nothing_is_looked_at_while_nobody_asks(it: Any) -> None:
    training = Training(it)
    training.epoch()
    assert it.recorder.on_backward is None and not it.probe.one_size.looks
    it.ask("c1", num_workers=1)
    training.epoch()
    assert it.recorder.on_backward is None and not it.probe.one_size.found


class Filling(nn.Module):
    """Sixteen keys that batches of four are written into."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.at = nn.Linear(2, 3), 0
        self.register_buffer("queue", torch.zeros(3, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x).tanh()
        self.queue[:, self.at : self.at + len(x)] = out.detach().t()
        self.at = (self.at + len(x)) % 16
        return out


@pytest.mark.parametrize("size", [6, 8])
def test_a_size_that_does_not_divide_the_models_ring_is_refused_at_the_boundary(it: Any, size: int) -> None:
    loader, model = loader_of(it, 24), Filling()
    optimizer = SlowSGD(it, model.parameters(), lr=0.01)
    for epoch in range(3):
        for number, batch in enumerate(loader):
            if (epoch, number) == (1, 1):
                it.ask("c1", batch_size=size)
            model(batch).square().mean().backward()
            optimizer.step()
            it.beat()
    said = it.of("change", id="c1")[-1]
    assert said["state"] == ("refused" if size == 6 else "settling")
    assert size != 6 or "a ring of 16 (queue)" in said["reason"]

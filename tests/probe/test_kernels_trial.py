"""A kernel change on trial: losses and gradients that go wrong are put right, and nobody else's trouble is ours."""

from __future__ import annotations

import gc
import math
import signal
import weakref
from typing import Any

import pytest
import torch
from kernels_harness import batch
from torch import nn

from cockpit.probe.kernels import finite, snapshot, trial
from cockpit.probe.preflight import Machine


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch):
    kind, precision = torch.amp.autocast_mode.autocast, torch.get_float32_matmul_precision()
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    yield
    torch.set_float32_matmul_precision(precision)


class Fragile(nn.Module):
    """``spoil`` says what low precision does to it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.norm, self.two = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.spoil = lambda out: out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.is_autocast_enabled("cpu") or torch.get_float32_matmul_precision() == "medium"
        out = self.two(self.norm(self.one(x)).relu())
        return self.spoil(out) if low else out


def nan(out: torch.Tensor) -> torch.Tensor:
    return out * float("nan")


def zero(out: torch.Tensor) -> torch.Tensor:
    return out * 0.0


class Training:
    """Without a loader, one step a call; the script may skip updates that it does not like."""

    def __init__(self, it: Any, skips: bool = False) -> None:
        self.it, self.skips, self.model = it, skips, Fragile()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.step_number, self.losses = 0, list[float]()
        self.run(3)

    def run(self, steps: int) -> list[float]:
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = self.model(batch(seed=self.step_number)).square().mean()
            loss.backward()
            if not self.skips or math.isfinite(loss.item()):
                self.optimizer.step()
            self.step_number += 1
            self.losses.append(loss.item())
            self.it.spend(20)
        return self.losses[-steps:]

    def state(self) -> list[torch.Tensor]:
        states = [t for state in self.optimizer.state.values() for t in state.values()]
        return [t.clone() for t in (*self.model.state_dict().values(), *states)]

    def ask(self, name: str = "c1", spoil: Any = None, **knobs: Any) -> None:
        """It lands in the middle of the step that is run here."""
        self.it.ask(name, now=True, **(knobs or {"autocast": "bf16"}))
        self.run(1)
        assert self.last(name)["state"] == "applying"
        self.model.spoil = spoil or self.model.spoil

    def last(self, name: str = "c1") -> dict[str, Any]:
        return [m for m in self.it.of("change") if m["id"] == name][-1]

    @property
    def trial(self) -> Any:
        return self.it.recorder.trial


def test_nothing_of_it_exists_before_a_change_lands(it):
    training = Training(it)
    assert training.trial is None
    training.ask(threads=torch.get_num_threads())
    assert training.trial is None, "threads change nothing of what is computed"


def test_a_loss_that_became_nan(it):
    training = Training(it)
    training.ask(spoil=nan)  # without a loader it lands where the step ends: at the forward of the next
    landed = training.trial
    assert landed is not None and landed.snapshot is not None
    training.run(1)
    assert training.trial is landed and all(p.isfinite().all() for p in training.model.parameters())
    training.run(1)
    told = training.last()
    assert told["state"] == "rolled_back" and told["reason"].startswith("loss became nan: back to step 3: the update")
    assert "EMA" in told["reason"] and "schedule" not in told["reason"]
    assert training.trial is None and training.it.recorder.setting.change is None
    assert all(p.isfinite().all() for p in training.model.parameters())
    assert all(math.isfinite(loss) for loss in training.run(3))
    assert training.it.probe.kernels.roots[0].setting.autocast == "script"


@pytest.mark.parametrize(
    "check",
    [
        lambda it: nn.utils.clip_grad_norm_(it.model.parameters(), 1.0, error_if_nonfinite=True),
        lambda it: [p.grad for p in it.model.parameters() if not p.grad.isfinite().all()] and pytest.fail("it ends"),
    ],
    ids=["clipping", "looking"],
)
@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_script_that_checks_its_gradients_does_not_end_itself(it, check, late):
    training = Training(it)
    training.ask()
    training.run(late)
    training.model.spoil = nan
    step = training.optimizer.step
    training.optimizer.step = lambda *args: (check(training), step(*args))[1]
    training.run(2)
    told = training.last()
    assert told["state"] == "rolled_back" and told["reason"].startswith("loss became nan: back to step 3: the update")
    assert all(math.isfinite(loss) for loss in training.run(3))


def test_gradients_added_up_after_one_that_is_not_finite_are_no_skipped_batch(it):
    training = Training(it)
    training.ask()
    training.optimizer.zero_grad()
    for spoil in (nan, lambda out: out):
        training.model.spoil = spoil
        training.model(batch()).square().mean().backward()
    training.optimizer.step()
    training.run(1)
    assert training.last()["reason"].startswith("loss became nan: back to step 3")


def test_gradients_alone_may_be_what_is_not_finite(it):
    training = Training(it)
    training.ask(spoil=lambda out: (out * 0.0).abs().sqrt())
    training.run(2)
    assert training.last()["reason"].startswith("gradients became nan: back to step 3")


def test_under_a_scaler_such_gradients_are_its_own_affair(it, monkeypatch):
    monkeypatch.setattr(trial, "scaler_in_use", lambda torch: True)
    training = Training(it, skips=True)
    training.ask(spoil=nan)
    training.optimizer.zero_grad()
    training.model(batch()).square().mean().backward()
    assert any(not p.grad.isfinite().all() for p in training.model.parameters())


def test_what_is_put_back_is_what_was_there(it, monkeypatch):
    training, taken = Training(it), []
    original = trial.Trial._take

    def take(self, *args):
        taken.append(training.state())
        return original(self, *args)

    monkeypatch.setattr(trial.Trial, "_take", take)
    put = []
    back = snapshot.Snapshot.put_back

    def put_back(self):
        words = back(self)
        put.append(training.state())
        return words

    monkeypatch.setattr(snapshot.Snapshot, "put_back", put_back)
    training.ask(spoil=nan)
    training.run(3)
    assert len(taken) == len(put) == 1
    assert all(torch.equal(a, b) for a, b in zip(taken[0], put[0], strict=True))


@pytest.mark.parametrize("spoil", [nan, lambda out: out * float("inf")], ids=["nan", "inf"])
def test_matmul_goes_back_too(it, spoil):
    training = Training(it)
    own = torch.get_float32_matmul_precision()
    training.ask(matmul="medium", spoil=spoil)
    training.run(3)
    assert training.last()["state"] == "rolled_back" and torch.get_float32_matmul_precision() == own


def test_gradients_that_are_all_zero(it):
    training = Training(it)
    training.ask(spoil=zero)
    training.run(finite.ZERO_STEPS - 1)
    assert training.last()["state"] != "rolled_back"
    training.run(2)
    assert training.last()["reason"].startswith("all gradients became 0: back to step 3: the updates of")


def test_one_gradient_is_enough(it):
    training = Training(it)
    training.ask(spoil=lambda out: out * torch.tensor([0.0, 1.0]))
    training.run(2 * finite.ZERO_STEPS)
    assert training.last()["state"] == "settling"


@pytest.mark.parametrize("to_none", [True, False])
def test_a_batch_that_the_script_skips_is_no_divergence(it, to_none):
    training = Training(it, skips=True)
    zero_grad = training.optimizer.zero_grad
    training.optimizer.zero_grad = lambda: zero_grad(set_to_none=to_none)
    training.ask()
    for _ in range(4):
        training.model.spoil = nan
        training.run(1)
        training.model.spoil = lambda out: out
        training.run(2)
    assert training.last()["state"] == "settling" and training.trial is not None


def test_it_was_so_before(it):
    training = Training(it)
    with torch.no_grad():
        training.model.two.bias.fill_(float("nan"))
    training.ask()
    training.run(finite.NONFINITE_STEPS + finite.ZERO_STEPS + 3)
    assert training.last()["state"] == "settling"


def test_zeros_before_are_not_the_changes(it):
    training = Training(it)
    training.model.spoil = zero
    original = training.model.two.forward
    training.model.two.forward = lambda x: original(x) * 0.0
    training.run(2)
    training.ask()
    training.run(2 * finite.ZERO_STEPS)
    assert training.last()["state"] == "settling"


def test_the_engines_word_ends_it(it):
    training = Training(it)
    training.ask()
    training.run(2)
    copies = weakref.ref(training.trial.snapshot)
    it.probe.landing.trials.hear({"m": "kept", "id": "another"})
    training.run(2)
    assert training.trial is not None
    it.probe.landing.trials.hear({"m": "kept", "id": "c1"})
    training.run(2)
    gc.collect()
    assert training.trial is None and copies() is None
    training.model.spoil = nan
    training.run(3)
    assert training.last()["state"] == "settling", "what goes wrong once it is kept is nobody's fault but its own"


def test_without_an_engine_it_ends_after_long(it):
    training = Training(it)
    training.ask()
    training.run(2)
    it.spend(trial.LEAST_NS / 1e6)
    training.run(2)
    assert training.trial is not None, "so few steps tell nothing"
    it.recorder.steps += trial.LEAST_STEPS
    training.run(2)
    assert training.trial is None


def test_another_change_takes_over_and_the_way_back_ends_it(it):
    training = Training(it)
    training.ask()
    first = training.trial
    training.ask("c2", matmul="medium")
    assert training.trial is not first and training.trial.ask.id == "c2"
    training.run(2)
    training.model.spoil = nan
    training.run(3)
    assert training.last("c2")["state"] == "rolled_back" and training.last("c1")["state"] == "settling"
    training.model.spoil = lambda out: out
    training.ask("c3", autocast="script")
    assert training.trial is None


def test_what_does_not_fit_is_said_before_and_stays(it, monkeypatch):
    training = Training(it)
    monkeypatch.setattr(snapshot, "look", lambda workers: Machine(None, None, 100, None))
    it.spend(20_000)
    it.beat()
    training.run(2)
    it.ask("c1", now=True, autocast="bf16")
    queued = training.last()
    assert queued["state"] == "queued"
    assert queued["note"].startswith("cannot be undone if it diverges: a copy of its state needs 1.")
    training.run(1)
    training.model.spoil = nan
    training.run(3)
    told = training.last()
    assert told["state"] == "rolled_back" and "it cannot be undone (a copy of its state needs" in told["reason"]
    assert training.it.probe.kernels.roots[0].setting.autocast == "script"


def test_a_schedule_is_named(it):
    training = Training(it)
    schedule = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.9)
    training.ask(spoil=nan)
    training.run(3)
    assert "not put back: the learning rate's schedule, copies" in training.last()["reason"]
    assert schedule.last_epoch == 0


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x


def old(training: Training) -> None:
    layer = training.model.one
    layer.forward = lambda x: Old.apply(x, layer.weight)


def test_a_backward_that_fails_under_it_costs_one_steps_gradients(it):
    training = Training(it)
    old(training)
    training.run(2)
    training.optimizer.zero_grad()
    training.it.ask("c1", now=True, autocast="bf16")
    training.run(3)
    told = training.last()
    assert told["state"] == "rolled_back" and "same dtype" in told["reason"]
    assert "in backward: this step's gradients counted as 0" in told["reason"]
    assert training.it.probe.kernels.roots[0].setting.autocast == "script"
    assert all(math.isfinite(loss) for loss in training.run(3)) and training.trial is None


def test_gradients_added_up_before_a_failing_backward_are_kept(it):
    training = Training(it)
    model = training.model
    old(training)
    training.ask()
    kept = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert training.trial is not None
    model(batch(seed=51)).square().mean().backward()
    assert all(torch.equal(model.get_parameter(name).grad, before) for name, before in kept.items())
    assert not model.one.bias.grad.any() and "one.bias" not in kept
    assert training.trial.failed


@pytest.mark.parametrize("when", ["no change", "later", "by a signal"])
def test_an_error_of_the_scripts_own_backward_stays_its_own(it, when):
    class Stop(Exception):
        pass

    def handler(number, frame):
        raise Stop

    def strike(gradient):
        if when == "by a signal":
            signal.raise_signal(signal.SIGUSR1)
        raise Stop

    training = Training(it)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        if when != "no change":
            training.ask() if when == "later" else training.it.ask("c1", now=True, autocast="bf16")
            training.run(3 if when == "later" else 0)
        loss = training.model(batch()).square().mean()
        if when == "by a signal":
            loss = training.model(batch()).square().mean()
        loss.register_hook(strike)
        with pytest.raises(Stop):
            loss.backward()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not it.probe.guard.reasons


def test_a_flag_of_a_gpu_is_read_when_it_is_there():
    """As on a device: the number arrives later, and nobody waits for it."""

    class Event:
        there = False

        def query(self):
            return self.there

    model = Fragile()
    watch = finite.Finiteness(torch, model.parameters())
    events = [Event() for _ in range(3)]
    for step, event in enumerate(events):
        watch._flags.append(finite.Flag(finite.LOSS, step, event, torch.tensor(float("nan"))))
    assert watch.found() is None
    events[0].there = events[2].there = True
    assert watch.found() is None and len(watch._flags) == 2, "in their order"
    events[1].there = True
    assert watch.found() == "loss became nan"

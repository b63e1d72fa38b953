"""Autocast that makes each step several times slower on a CPU goes back within a few steps, and says what was seen."""

from __future__ import annotations

import pytest
import torch
from test_kernels_trial import Fragile, Training, torch_as_before
from torch.utils.data import DataLoader

__all__ = ["torch_as_before"]


def before(it, forward_ms: float = 10.0) -> Training:
    """Some steps that take ``forward_ms`` in the forward, whatever is asked."""
    training = Training(it)
    training.model.register_forward_hook(lambda *_: it.spend(forward_ms))
    for _ in range(7):  # looks are about a second apart: the steps that began the training are forgotten by then
        training.run(3)
        it.probe.landing.look()
    return training


def slower_by(it, *extra_ms: float):
    """In each forward under low precision, so much more; the last for ever."""
    left = list(extra_ms)

    def spoil(out):
        it.spend(left.pop(0) if len(left) > 1 else left[0])
        return out

    return spoil


def test_each_step_several_times_slower_goes_back_at_once(it):
    training = before(it)
    training.ask(spoil=slower_by(it, 90.0))
    training.run(12)
    told = training.last()
    assert told["state"] == "rolled_back" and training.trial is None
    assert told["reason"] == "forward and backward take 100 ms a step and more, instead of 10 ms"
    assert it.probe.kernels.roots[0].setting.autocast == "script"


@pytest.mark.parametrize(
    ("extra_ms", "knobs"),
    [
        pytest.param((15.0,), {}, id="by a little"),
        pytest.param((900.0, 900.0, 0.0), {}, id="at first"),
        pytest.param((90.0, 90.0, 90.0, 5.0, 90.0), {}, id="in most steps"),
        pytest.param((90.0,), {"matmul": "medium"}, id="by another knob"),
    ],
)
def test_what_the_trial_itself_will_measure_is_left_to_it(it, extra_ms, knobs):
    training = before(it)
    training.ask(spoil=slower_by(it, *extra_ms), **knobs)
    training.run(12)
    assert training.last()["state"] == "settling"


def test_short_steps_are_not_cut_off_before_they_have_cost_a_second(it):
    training = before(it, 1.0)
    training.ask(spoil=slower_by(it, 9.0))
    training.run(12)
    assert training.last()["state"] == "settling"
    training.run(100)
    assert training.last()["reason"] == "forward and backward take 10 ms a step and more, instead of 1 ms"


@pytest.mark.parametrize("seconds", [0.1, 1.5], ids=["many steps to a look", "a look to each step"])
def test_between_two_epochs_where_most_changes_land_it_is_found_too(it, seconds):
    model = Fragile()
    model.register_forward_hook(lambda *_: it.spend(1000 * seconds))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(48, 8), batch_size=4)

    def epoch():
        for number, x in enumerate(loader):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if seconds > 1 or number % 3 == 2:
                it.probe.landing.look()

    epoch()
    epoch()
    it.ask("c1", autocast="bf16")
    model.spoil = slower_by(it, 5000 * seconds)
    epoch()
    told = [m for m in it.of("change") if m["id"] == "c1"][-1]
    assert told["state"] == "rolled_back" and told["reason"].startswith("forward and backward take"), told


def test_without_a_before_nothing_is_said(it):
    training = Training(it)
    training.ask(spoil=slower_by(it, 90.0))
    training.run(12)
    assert training.last()["state"] == "settling"

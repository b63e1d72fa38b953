"""Random states are taken and put back whole, on every device in use; nothing is initialised or imported for it."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cockpit.probe.handoff import randomness


def drawn():
    return torch.rand(2).tolist(), random.random(), np.random.rand()


@pytest.fixture(autouse=True)
def own_states():
    states = randomness.taken(torch)
    yield
    randomness.put(torch, states)


@pytest.fixture
def device(monkeypatch):
    """Two devices of a kind that is not here, one of them drawn from."""
    states = [torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([3, 4], dtype=torch.uint8)]
    module = SimpleNamespace(
        is_initialized=lambda: True, is_available=lambda: True, device_count=lambda: len(states),
        get_rng_state=lambda index: states[index].clone(),
        set_rng_state=lambda state, index: states[index].copy_(state),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch.hpu", module)
    return module, states


def test_what_is_put_back_draws_the_same_again():
    states = randomness.taken(torch)
    first = drawn()
    assert drawn() != first
    assert randomness.put(torch, states) == [] and drawn() == first


def test_each_device_in_use_has_its_own(device):
    _, states = device
    taken = randomness.taken(torch)
    states[0].zero_()
    assert randomness.put(torch, taken) == [] and states[0].tolist() == [1, 2] and states[1].tolist() == [3, 4]


def test_a_device_that_is_gone_is_named(device):
    _, states = device
    taken = randomness.taken(torch)
    del states[1]
    assert randomness.put(torch, taken) == ["hpu:1"]


def test_a_device_that_the_script_has_not_used_is_not_asked(device):
    module, _ = device
    module.is_initialized = lambda: False
    module.get_rng_state = None
    assert "hpu" not in randomness.taken(torch)


def test_without_numpy_in_the_process_it_is_not_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy.random", None)
    assert "numpy" not in randomness.taken(torch)


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, np.random.rand, np.random.randn, lambda: 0])
def test_what_code_of_the_scripts_has_drawn_meanwhile_is_taken_back(draw):
    states = randomness.taken(torch)
    draw()
    randomness.put_if_moved(torch, states)
    first = drawn()
    randomness.put(torch, states)
    assert drawn() == first

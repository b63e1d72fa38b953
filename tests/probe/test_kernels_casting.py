"""Casting through what forwards return, and handing on what is not known."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest
import torch

from cockpit.probe.kernels.casting import Outputs

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass(frozen=True)
class Frozen:
    loss: Any
    name: str = "x"


class ModelOutput(OrderedDict):
    """As in transformers: a dataclass, an OrderedDict, and attributes, kept in step."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Held:
    def __init__(self, tensor):
        self.tensor = tensor


def low() -> torch.Tensor:
    return torch.ones(2, dtype=torch.bfloat16, requires_grad=True)


def casting() -> Outputs:
    return Outputs(torch.Tensor, lambda t: t.dtype == torch.bfloat16, lambda t: t.float())


SHAPES = {
    "tensor": (lambda t: t, lambda out: out),
    "tuple": (lambda t: (t, None, 3), lambda out: out[0]),
    "list": (lambda t: [1, t], lambda out: out[1]),
    "namedtuple": (lambda t: Pair("word", t), lambda out: out.b),
    "dict": (lambda t: {"loss": t}, lambda out: out["loss"]),
    "ordered": (lambda t: OrderedDict(loss=t), lambda out: out["loss"]),
    "model_output": (lambda t: ModelOutput(loss=t), lambda out: out.loss),
    "dataclass": (lambda t: Frozen(t), lambda out: out.loss),
    "struct": (lambda t: torch.stack([t, t]).max(0), lambda out: out.values),
    "nested": (lambda t: {"a": [(Frozen([t]),)]}, lambda out: out["a"][0][0].loss[0]),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_known_containers(shape):
    make, take = SHAPES[shape]
    source, outputs = low(), casting()
    value = make(source)
    inner = take(value)
    out = outputs.changed(value)
    assert type(out) is type(value)
    assert take(out).dtype == torch.float32 and take(out).grad_fn is not None
    assert take(value) is inner and inner.dtype == torch.bfloat16, "the container itself must stay as it was"
    assert outputs.unknown is None


def test_model_output_keeps_items_and_attributes_in_step():
    out = casting().changed(ModelOutput(loss=low(), logits=torch.ones(1)))
    assert out.loss is out["loss"] and out.logits is out["logits"]


@pytest.mark.parametrize("value", [torch.ones(2), (torch.ones(2), 1), {"a": [torch.ones(2)]}, Frozen(None), None, "x"])
def test_nothing_to_cast_hands_on_the_same_object(value):
    outputs = casting()
    assert outputs.changed(value) is value
    assert outputs.unknown is None


@pytest.mark.parametrize("make", [Held, lambda t: UserDict(a=t), lambda t: {t}])
def test_what_is_not_known_is_handed_on_and_named(make):
    outputs, value = casting(), make(low())
    assert outputs.changed((value,))[0] is value
    assert outputs.unknown == type(value).__name__


def test_an_unknown_object_without_low_tensors_is_not_named():
    outputs = casting()
    outputs.changed(Held(torch.ones(2)))
    assert outputs.unknown is None


def test_a_container_that_holds_itself_ends():
    ring: list[Any] = [1]
    ring.append(ring)
    casting().changed(ring)

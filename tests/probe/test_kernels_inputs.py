"""A forward that changes what it is handed, and then fails under a new setting: it runs again on what it was handed."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from kernels_harness import Net, batch, control

from cockpit.probe.guard import Guard
from cockpit.probe.kernels import keep


@pytest.fixture(autouse=True)
def regions_as_torch_has_them(monkeypatch):
    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)


class InPlace(Net):
    """Normalises its input in place, and assigns what autocast has made into a float32 buffer."""

    def forward(self, x: Any, also: Any = None) -> torch.Tensor:
        for tensor in x if isinstance(x, (tuple, list)) else [x["x"] if isinstance(x, (dict, UserDict)) else x]:
            tensor.sub_(tensor.mean()).div_(3.0)
            x = tensor
        if also is not None:
            also.mul_(2.0)
        out = super().forward(x)
        room = torch.zeros(6, 4)
        room[torch.arange(6)] = out
        return room


def models() -> tuple[InPlace, InPlace]:
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(InPlace())
    return found[0], found[1]


HANDED = {
    "alone": lambda x: x,
    "in a tuple": lambda x: (x,),
    "in a list": lambda x: [x],
    "in a dict": lambda x: {"x": x},
    "as a tokenizer hands it": lambda x: UserDict(x=x),
    "as a model's output": lambda x: Output(x=x),
}


class Output(OrderedDict):
    """Its own way to read it is not ours to call."""

    values = items = None


@pytest.mark.parametrize("handed", HANDED.values(), ids=HANDED)
def test_it_runs_again_on_what_it_was_handed(handed: Any) -> None:
    bare, failing = models()
    kernels = control(failing)
    kernels.land({"autocast": "bf16"})
    x, y, also, also_too = batch(), batch(), torch.ones(3), torch.ones(3)
    expected, out = bare(handed(x), also=also), failing(handed(y), also=also_too)
    assert torch.equal(expected, out) and torch.equal(x, y) and torch.equal(also, also_too)
    reason = kernels.take_notices()[0].reason
    assert reason.endswith("(this step's forward ran twice)")


@pytest.mark.parametrize("why", ["too large", "no memory", "of a graph"])
def test_what_cannot_be_put_back_is_said(why: str, monkeypatch: Any) -> None:
    _, failing = models()
    kernels = control(failing)
    kernels.land({"autocast": "bf16"})
    if why == "too large":
        monkeypatch.setattr(keep, "INPUT_BYTES", 8)
    elif why == "no memory":
        monkeypatch.setattr(keep.Inputs, "_copy", lambda self, tensor: None)
    failing(batch() * torch.ones(1, requires_grad=True) if why == "of a graph" else batch())
    reason = kernels.take_notices()[0].reason
    assert reason.endswith("(this step's forward ran twice: what it did to its input in place was done twice)")


def test_inference_tensors_and_what_is_no_tensor_are_passed_by() -> None:
    class Handed(Net):
        def forward(self, x: Any, more: Any) -> torch.Tensor:
            return super().forward(x)

    kernels = control(model := Handed())
    kernels.land({"autocast": "bf16"})
    with torch.inference_mode():
        table = torch.ones(3)
    assert model(batch(), {"a": [table, None, 3], "b": (("deep", [[table]]),)}).dtype == torch.float32


class Raising(Mapping):
    """Says no to whoever reads it but the script."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __getitem__(self, key: Any) -> Any:
        raise LookupError("not yours")

    def __iter__(self) -> Iterator[Any]:
        raise LookupError("not yours")

    __len__ = values = items = __iter__

    @property
    def __class__(self) -> Any:
        raise LookupError("not yours")


class RaisingTensor(torch.Tensor):
    """A tensor that lets nothing be done with it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise LookupError("not yours")


STRANGE = {
    "a mapping of its own": lambda: Raising(torch.ones(3)),
    "a list of its own": lambda: type("Own", (list,), {"__iter__": None, "__len__": None})([torch.ones(3)]),
    "a tensor of its own": lambda: torch.ones(3).as_subclass(RaisingTensor),
    "of other layouts": lambda: [torch.ones(3, 3).to_sparse(), torch.nested.nested_tensor([torch.ones(2)])],
    "on no device": lambda: torch.ones(3, device="meta"),
    "more than is looked at": lambda: [torch.ones(1)] * (2 * keep.INPUTS),
    "holding itself": lambda: (held := [1], held.append(held))[0],
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_whatever_it_is_handed_it_runs(strange: Any) -> None:
    class Handed(InPlace):
        def forward(self, x: Any, strange: Any) -> torch.Tensor:
            return super().forward(x)

    torch.manual_seed(0)
    kernels = control(failing := Handed())
    torch.manual_seed(0)
    kernels.land({"autocast": "bf16"})
    assert torch.equal(failing(x := batch(), strange()), InPlace()(y := batch())) and torch.equal(x, y)
    assert "(this step's forward ran twice" in kernels.take_notices()[0].reason


def test_what_raises_while_it_is_kept_is_not_the_forwards(monkeypatch: Any) -> None:
    def fails(self: Any, value: Any, depth: int) -> None:
        raise LookupError("nobody knows why")

    monkeypatch.setattr(keep.Inputs, "_look", fails)
    guard = Guard(lambda: False)
    _, failing = models()
    kernels = control(failing, run=guard.run)
    kernels.land({"autocast": "bf16"})
    failing(batch())
    reason = kernels.take_notices()[0].reason
    assert reason.endswith("(this step's forward ran twice: %s)" % keep.UNSEEN)
    assert "nobody knows why" in guard.reasons["inputs"]


def test_what_is_copied_is_bounded_in_all(monkeypatch: Any) -> None:
    monkeypatch.setattr(keep, "INPUT_BYTES", 64)
    same, other = torch.ones(8), torch.ones(8)
    kept = keep.Inputs(torch, ([same, same, same], {"a": other, "b": torch.ones(1)}))
    assert [value is not None for _, _, value in kept._met.values()] == [True, True, False]
    assert keep.Inputs(torch, [same] * 9)._whole and not keep.Inputs(torch, [same] * keep.INPUTS)._whole

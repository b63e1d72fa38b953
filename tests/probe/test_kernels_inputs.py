"""A forward that changes what it is handed, and then fails under a new setting: it runs again on what it was handed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels_harness import Net, batch, control

from cockpit.probe.kernels import keep


@pytest.fixture(autouse=True)
def regions_as_torch_has_them(monkeypatch):
    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)


class InPlace(Net):
    """Normalises its input in place, and assigns what autocast has made into a float32 buffer."""

    def forward(self, x: Any, also: Any = None) -> torch.Tensor:
        for tensor in x if isinstance(x, (tuple, list)) else [x["x"] if isinstance(x, dict) else x]:
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
}


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
        monkeypatch.setattr(keep, "LARGEST_INPUT", 8)
    elif why == "no memory":
        monkeypatch.setattr(keep.Kept, "_copy", lambda self, tensor: None)
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

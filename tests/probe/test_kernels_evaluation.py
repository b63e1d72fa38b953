"""Where gradients are off nothing of autocast's knob is in force: evaluations go to numpy, hooks and files."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels_harness import Net, batch, control, net, row, train
from torch import nn
from torch.nn.utils import prune, spectral_norm
from torch.utils.checkpoint import checkpoint

from cockpit.probe.kernels import caught
from cockpit.probe.kernels.tracing import is_traced, let_script


@pytest.fixture(autouse=True)
def regions_as_torch_has_them(monkeypatch):
    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)


class Keeping(Net):
    """Keeps what runs inside: for attention maps, t-SNE, nearest neighbours."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner = self.one(x).detach()
        return self.two(self.inner.relu())


def keeping() -> Keeping:
    torch.manual_seed(0)
    return Keeping()


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_what_is_caught_in_an_evaluation_is_as_the_script_has_it(off: Any) -> None:
    model, bare = keeping(), keeping()
    hooked: list[Any] = []
    model.two.register_forward_hook(lambda m, i, out: hooked.append(out.detach()))
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    model(batch())
    assert model.inner.dtype == hooked[-1].dtype == torch.bfloat16
    with off():
        out, expected = model(batch()), bare(batch())
    assert torch.equal(model.inner, bare.inner) and torch.equal(out, expected)
    hooked[-1].numpy()
    assert row(kernels, "autocast").in_force == "bf16", "the evaluation says nothing about the training"
    assert "evaluation" in row(kernels, "autocast").note


def test_an_evaluation_alone_shows_nothing_to_be_in_force() -> None:
    model = net()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    with torch.no_grad():
        model.eval()(batch())
    assert row(kernels, "autocast").in_force is None
    assert not kernels.roots[0].calls


REGIONS = {  # the script's own value, and what is asked for
    "on, asked off": (True, "off"),
    "on, asked bf16": (True, "bf16"),
    "a switch that is off, asked bf16": (False, "bf16"),
}


@pytest.mark.parametrize("inside_out", [False, True], ids=["region in no_grad", "no_grad in region"])
@pytest.mark.parametrize("own, word", REGIONS.values(), ids=REGIONS)
def test_the_scripts_own_region_round_an_evaluation_is_its_own(own: bool, word: str, inside_out: bool) -> None:
    model, bare = keeping(), keeping()
    kernels = control(model)
    kernels.land({"autocast": word})
    region, off = torch.autocast("cpu", dtype=torch.bfloat16, enabled=own), torch.no_grad()
    first, second = (region, off) if inside_out else (off, region)
    for _ in range(2):
        with first, second:
            out = model(batch())
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=own, cache_enabled=False):
            kernels.land({"autocast": "script"})
            expected = bare(batch())
            kernels.land({"autocast": word})
        assert (model.inner.dtype, out.dtype) == (bare.inner.dtype, expected.dtype)
        with region:
            model(batch())
        assert model.inner.dtype == (torch.bfloat16 if word == "bf16" else torch.float32)


def test_a_region_that_was_left_does_not_count_for_a_later_evaluation() -> None:
    model = keeping()
    kernels = control(model)
    kernels.land({"autocast": "off"})
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", dtype=torch.float16):
        model(batch())
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        model(batch())
        assert model.inner.dtype == torch.bfloat16
    with torch.no_grad():
        model(batch())
        assert model.inner.dtype == torch.float32


class Parts(Net):
    """Frozen first part, checkpointed second: gradients are off in both for a while, and it is training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            h = self.one(x)
        return checkpoint(self.part, h.float().requires_grad_(), use_reentrant=True)

    def part(self, h: torch.Tensor) -> torch.Tensor:
        out = self.two(h)
        self.dtypes = [*getattr(self, "dtypes", []), out.dtype]
        return out


def test_a_forward_of_the_training_that_switches_gradients_off_inside_stays_under_it() -> None:
    torch.manual_seed(0)
    model = Parts()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    model(batch()).sum().backward()
    assert model.dtypes == [torch.bfloat16] * 2


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_root_inside_a_reentrant_checkpoint_computes_again_what_it_has_computed(evaluated: bool) -> None:
    model = keeping()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    out = checkpoint(model, batch().requires_grad_(), use_reentrant=True)
    first = model.inner
    if evaluated:
        with torch.no_grad():
            model(batch())
    out.sum().backward()
    assert first.dtype == torch.bfloat16 and torch.equal(first, model.inner)
    assert row(kernels, "autocast").in_force == "bf16"


def test_an_evaluation_that_fails_is_the_scripts_own_and_runs_once() -> None:
    class Failing(Net):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if not torch.is_grad_enabled():
                raise ValueError("its own")
            return super().forward(x)

    model = Failing()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    with torch.no_grad(), pytest.raises(ValueError):
        model(batch())
    assert model.calls == 1 and not kernels.take_notices()


def test_evaluations_leave_the_rows_word_for_the_script_alone() -> None:
    model = net()
    kernels = control(model)
    train(model, 1)
    kernels.roots[0].look()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model(batch())
    model(batch())
    assert row(kernels, "autocast").script == "off"


# ---- who catches what is inside in training, where it can be known ----


def hook(module: Any, *_: Any) -> None:
    """A script's."""


@pytest.mark.parametrize("where", ["inner", "before", "itself", "all modules"])
def test_hooks_of_the_script_are_told_of_beforehand(where: str) -> None:
    model = net()
    handle = {
        "inner": lambda: model.one.register_forward_hook(hook),
        "before": lambda: model.two.register_forward_pre_hook(hook),
        "itself": lambda: model.register_forward_hook(hook, with_kwargs=True),
        "all modules": lambda: nn.modules.module.register_module_forward_hook(hook),
    }[where]()
    try:
        note = row(control(model), "autocast").note
    finally:
        handle.remove()
    assert "forward hook of the script (test_kernels_evaluation.py:" in note


def test_torchs_own_hooks_are_nobodys() -> None:
    model = net()
    spectral_norm(model.one)
    prune.l1_unstructured(model.two, "weight", amount=0.5)
    assert caught.words_of(torch, model) is None
    assert "hook" not in (row(control(model), "autocast").note or "")


def dtypes_in(traced: Any) -> set[str]:
    return {word for word in ("Half", "BFloat16", "autocast", "prim::Constant[value=15]") if word in str(traced.graph)}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_what_is_traced_or_scripted_for_a_file_is_as_the_script_has_it(monkeypatch) -> None:
    recursive = torch.jit._recursive
    known = [name for name in recursive.ignored_attributes if name != "_compiled_call_impl"]  # whoever ran before
    monkeypatch.setattr(recursive, "ignored_attributes", known)
    model, bare, x = net().eval(), net().eval(), batch()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    assert not torch.equal(model(x), bare(x)), "it is in force where gradients are on"
    traced = torch.jit.trace(model, x)  # compares with the model itself, and raises where that differs
    assert torch.equal(traced(x), bare(x)) and dtypes_in(traced) == dtypes_in(torch.jit.trace(bare, x))
    assert not is_traced(torch) and row(kernels, "autocast").in_force == "bf16"
    with pytest.raises(AssertionError, match="Unsupported annotation"):
        torch.jit.script(model)
    let_script()
    assert torch.equal(torch.jit.script(model)(x), bare(x))

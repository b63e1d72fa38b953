"""autocast on real models: in force when said, left before the loss, bit-identical after it, nothing left behind."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import Any

import pytest
import torch
from kernels_harness import Net, batch, control, net, row, train
from torch import nn
from torch.utils.checkpoint import checkpoint

from cockpit.probe.groups import Refused


@pytest.fixture(autouse=True)
def regions_as_torch_has_them(monkeypatch):
    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)


def seen_in(module: nn.Module) -> list[Any]:
    """The dtype that the inner linear layer gives, at each call."""
    found: list[Any] = []
    next(m for m in module.modules() if isinstance(m, nn.Linear)).register_forward_hook(
        lambda m, i, out: found.append(out.dtype)
    )
    return found


def test_inside_bf16_outside_float32_and_not_for_the_loss():
    model = net()
    inside, kernels = seen_in(model), control(model)
    kernels.land({"autocast": "bf16"})
    out = model(batch())
    assert inside == [torch.bfloat16] and out.dtype == torch.float32
    assert (out @ out.T).dtype == torch.float32, "the loss outside must not run in it"
    out.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


def test_in_force_only_once_a_call_has_shown_it():
    model = net()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    assert row(kernels, "autocast").in_force is None
    model(batch())
    assert row(kernels, "autocast").in_force == "bf16"
    kernels.land({"autocast": "off"})
    model(batch())
    assert row(kernels, "autocast").in_force == "off"


def test_ten_times_on_and_off_and_bit_identical_after():
    bare, toggled = net(0.3), net(0.3)
    kernels = control(toggled)
    kept = copy.deepcopy(toggled.state_dict())
    for _ in range(10):
        kernels.land({"autocast": "bf16"})
        train(toggled, 1)
        kernels.land({"autocast": "script"})
        train(toggled, 1)
    toggled.load_state_dict(kept)
    torch.manual_seed(5)
    expected = train(bare)
    torch.manual_seed(5)
    assert train(toggled) == expected
    assert all(
        torch.equal(a, b) for a, b in zip(bare.state_dict().values(), toggled.state_dict().values(), strict=True)
    )
    assert torch.amp.autocast_mode.autocast.__enter__ is kernels.places._original


def test_results_are_within_bf16_of_float32():
    bare, cast = net(), net()
    control(cast).land({"autocast": "bf16"})
    assert train(cast) == pytest.approx(train(bare), rel=0.05)


def test_same_random_numbers_are_drawn():
    model = net(0.3)
    control(model).land({"autocast": "bf16"})
    torch.manual_seed(5)
    model(batch())
    after = torch.get_rng_state()
    torch.manual_seed(5)
    net_too = net(0.3)
    torch.manual_seed(5)
    net_too(batch())
    assert torch.equal(after, torch.get_rng_state())


# ---- the script's own autocast ----


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("word, dtype", [("bf16", torch.bfloat16), ("off", torch.float32)])
def test_own_region_keeps_its_place_and_gets_our_value(enabled, word, dtype):
    model = net()
    inside, kernels = seen_in(model), control(model)
    kernels.land({"autocast": word})
    region = torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)
    for _ in range(2):
        with region:
            out = model(batch())
            loss = out @ out.T
        assert (inside[-1], out.dtype, loss.dtype) == (dtype, dtype, dtype)
        assert (region._enabled, region.fast_dtype) == (enabled, torch.bfloat16)
    kernels.land({"autocast": "script"})
    with region:
        model(batch())
    assert inside[-1] == (torch.bfloat16 if enabled else torch.float32)


def test_islands_stay_float32():
    class Island(Net):
        def forward(self, x):
            with torch.autocast("cpu", enabled=False):
                self.seen = self.one(x).dtype
            return super().forward(x)

    torch.manual_seed(0)
    model = Island()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    model(batch())
    assert model.seen == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(batch())
        with torch.autocast("cpu", enabled=False):
            assert (out @ out.T).dtype == torch.bfloat16
            assert (out.float() @ out.float().T).dtype == torch.float32
    assert model.seen == torch.float32


def test_a_root_inside_an_island_is_left_alone_and_the_row_says_so():
    model = net()
    inside, kernels = seen_in(model), control(model)
    kernels.land({"autocast": "bf16"})
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        model(batch())
    assert inside == [torch.float32]
    found = row(kernels, "autocast")
    assert found.in_force == "off" and "script decides" in found.note


def test_a_region_round_the_whole_epoch_is_overruled_from_inside():
    model = net()
    inside, kernels = seen_in(model), control(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(batch())
        kernels.land({"autocast": "off"})
        model(batch())
        kernels.land({"autocast": "script"})
        model(batch())
    assert inside == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_own_value_of_the_script_is_seen():
    model = net()
    kernels = control(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kernels.roots[0].look()
        model(batch())
    assert row(kernels, "autocast").script == "bf16"


def test_weights_that_move_are_not_cached_stale():
    model = net()
    control(model).land({"autocast": "bf16"})
    first = model.eval()(batch())
    with torch.no_grad():
        model.two.bias.add_(10)
        model.two.weight.mul_(0)
    assert (model(batch()) - first).abs().max() > 5


# ---- refusals ----


@pytest.mark.parametrize("kind, word", [(torch.bfloat16, "bfloat16 already"), (torch.float64, "float64")])
def test_models_that_it_cannot_help(kind, word):
    model = net().to(kind)
    kernels = control(model)
    with pytest.raises(Refused, match=word):
        kernels.land({"autocast": "bf16"})
    kernels.land({"autocast": "off"})


def test_fp16_only_with_a_scaler_in_use():
    model = net()
    kernels = control(model)
    with pytest.raises(Refused, match="GradScaler"):
        kernels.land({"autocast": "fp16"})
    unused, disabled = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False)
    disabled.scale(model(batch()).sum())
    with pytest.raises(Refused, match="GradScaler"):
        kernels.land({"autocast": "fp16"})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    unused.scale(model(batch()).sum()).backward()
    kernels.land({"autocast": "fp16"})
    inside = seen_in(model)
    unused.scale(model(batch()).sum()).backward()
    unused.step(optimizer)
    unused.update()
    assert inside == [torch.float16]


def test_no_root_no_autocast():
    kernels = control()
    with pytest.raises(Refused, match="no module was seen"):
        kernels.land({"autocast": "bf16"})
    assert not row(kernels, "autocast").can


def test_bypassed_by_the_scripts_own_compilation():
    model = net()
    kernels = control(model)
    kernels.bypassed = lambda: True
    with pytest.raises(Refused, match="compiled by the script"):
        kernels.land({"autocast": "bf16"})


# ---- a forward that fails under it ----


class Indexed(Net):
    """Assigns into a float32 buffer: fails under autocast, after having drawn and counted."""

    def __init__(self) -> None:
        super().__init__(0.3)
        self.register_buffer("room", torch.zeros(6, 4))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        out = super().forward(x)
        self.room.clone().scatter_add_(0, torch.zeros(6, 4, dtype=torch.long), out)
        return out


def test_a_failing_forward_runs_the_old_way_and_leaves_no_trace():
    torch.manual_seed(0)
    bare = Indexed()
    failing = copy.deepcopy(bare)
    kernels = control(failing)
    kernels.land({"autocast": "bf16"})
    torch.manual_seed(5)
    expected = train(bare, 2)
    torch.manual_seed(5)
    assert train(failing, 2) == expected
    assert failing.calls == 3 and bare.calls == 2
    assert all(
        torch.equal(a, b) for a, b in zip(bare.state_dict().values(), failing.state_dict().values(), strict=True)
    )
    notice = kernels.take_notices()[0]
    assert notice.failed.autocast == "bf16" and notice.setting.autocast == "script" and "RuntimeError" in notice.reason
    assert kernels.roots[0].idle and not kernels.places.wanted


def test_an_exception_of_the_script_is_its_own():
    class Stop(Exception):
        pass

    class Raises(Net):
        def forward(self, x):
            raise Stop

    model = Raises()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    with pytest.raises(Stop):
        model(batch())
    assert not kernels.take_notices() and kernels.places.called() is False
    assert not torch.is_autocast_enabled("cpu")


def test_one_root_gives_up_and_so_do_the_others():
    torch.manual_seed(0)
    failing, fine = Indexed(), net()
    kernels = control(fine, failing)
    kernels.land({"autocast": "bf16"})
    fine(batch())
    failing(batch())
    assert kernels.take_notices()
    assert all(root.idle for root in kernels.roots)


def test_outputs_that_cannot_be_cast_are_handed_on_and_said():
    class Box:
        def __init__(self, tensor):
            self.tensor = tensor

    class Boxed(Net):
        def forward(self, x):
            return Box(super().forward(x))

    model = Boxed()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    assert model(batch()).tensor.dtype == torch.bfloat16
    assert row(kernels, "autocast").note.startswith("outputs partly bf16: Box is handed on as it is")


# ---- pickles, copies, other ways of training ----


class OwnState(Net):
    def __getstate__(self):
        return dict(self.__dict__)


class OwnReduce(Net):
    def __reduce__(self):
        return _rebuilt, (dict(self.__dict__),)


def _rebuilt(attributes):
    module = OwnReduce.__new__(OwnReduce)
    module.__dict__.update(attributes)
    return module


class OwnCopy(Net):
    def __deepcopy__(self, memo):
        new = type(self).__new__(type(self))
        new.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return new


@pytest.mark.parametrize("kind", [Net, OwnState, OwnReduce, OwnCopy])
def test_saved_and_copied_models_are_clean(kind):
    torch.manual_seed(0)
    model = kind()
    names = list(model.state_dict())
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    model(batch())
    assert list(model.state_dict()) == names
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (torch.load(file, weights_only=False), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.__dict__.get("_compiled_call_impl") is None
        inside = seen_in(other)
        other(batch())
        assert inside == [torch.float32]


def test_the_average_of_weights_is_its_own_module():
    model = net()
    control(model).land({"autocast": "bf16"})
    average = torch.optim.swa_utils.AveragedModel(model)
    train(model, 3)
    average.update_parameters(model)
    average.eval()
    with torch.no_grad():
        assert torch.equal(average(batch()), model.eval()(batch())), "neither evaluates under it"


def test_data_parallel_checkpointing_closures_and_optimizer_in_backward():
    class Checkpointed(Net):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    torch.manual_seed(0)
    model = Checkpointed()
    wrapped = nn.DataParallel(model)
    inside, kernels = seen_in(model), control(wrapped)
    kernels.land({"autocast": "bf16"})
    train(wrapped, 2)
    assert inside == [torch.bfloat16] * 4

    closing = net()
    control(closing).land({"autocast": "bf16"})
    optimizer = torch.optim.LBFGS(closing.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = closing(batch()).square().mean()
        loss.backward()
        return loss

    before = closure().item()
    optimizer.step(closure)
    assert closure().item() < before

    def stepping_back(parameter):
        parameter.data.sub_(0.01 * parameter.grad)

    stepping = net()
    control(stepping).land({"autocast": "bf16"})
    for parameter in stepping.parameters():
        parameter.register_post_accumulate_grad_hook(stepping_back)
    weight = stepping.one.weight.clone()
    stepping(batch()).sum().backward()
    assert not torch.equal(weight, stepping.one.weight)


@pytest.mark.parametrize("way", ["decorated", "cuda_amp_like"])
def test_other_ways_to_place_a_region(way):
    model = net()
    inside, kernels = seen_in(model), control(model)
    region = torch.autocast("cpu", dtype=torch.bfloat16)
    if way == "decorated":
        step = region(lambda: model(batch()) @ torch.ones(4, 4))
    else:

        class Older(torch.autocast):
            def __enter__(self):
                return super().__enter__()

        def step():
            with Older("cpu", dtype=torch.bfloat16):
                return model(batch()) @ torch.ones(4, 4)

    kernels.land({"autocast": "off"})
    assert step().dtype == torch.float32 and inside == [torch.float32]
    kernels.land({"autocast": "script"})
    assert step().dtype == torch.bfloat16


def test_what_torch_runs_again_runs_as_it_was():
    class Custom(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x):
            return x * 1

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            found.append(torch.is_autocast_enabled("cpu"))
            return grad

    found: list[bool] = []
    model = net()
    control(model).land({"autocast": "bf16"})
    Custom.apply(model(batch())).sum().backward()  # outside the model, so in float32
    assert found == [False]


def test_another_thread_is_not_in_it():
    model, found = net(), []
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    model(batch())
    other = threading.Thread(target=lambda: found.append(torch.is_autocast_enabled("cpu")))
    other.start()
    other.join()
    assert found == [False]


def test_the_module_is_not_kept_alive():
    import weakref

    model = net()
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    model(batch())
    gone = weakref.ref(model)
    del model
    assert gone() is None and kernels.roots == []

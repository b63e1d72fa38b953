"""compile through the slot, with the real inductor: in place, counted, reversible, and clean in every file and copy."""

from __future__ import annotations

import copy
import gc
import io
import threading
import time
import weakref

import pytest
import torch
from kernels_harness import Net, batch, control, net, row, train
from torch import nn

from cockpit.probe.groups import Refused
from cockpit.probe.kernels import compiling, late_hooks
from cockpit.probe.kernels.late_hooks import CompiledIn


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch):
    import torch._dynamo

    torch._dynamo.reset()
    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    handler = torch._dynamo.callback.callback_handler
    before = list(handler.start_callbacks), list(handler.end_callbacks)
    yield
    handler.start_callbacks[:], handler.end_callbacks[:] = before


@pytest.fixture
def quick(monkeypatch):
    """The graph runs as it was captured: everything but the generated code."""
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, mode=None, backend="aot_eager": original(f, backend=backend))


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_inductor_on_off_ten_times_compiles_once_and_is_bit_identical_after():
    bare, model = net(), net()
    kernels = control(model)
    kept, names = copy.deepcopy(model.state_dict()), list(model.state_dict())
    made = graphs()
    kernels.land({"compile": "default"})
    assert row(kernels, "compile").in_force is None
    first = model(batch())
    first.sum().backward()
    assert row(kernels, "compile")[:3] == ("compile", "off", "default")
    after_first = graphs()
    assert after_first > made and kernels.watch.found().graphs >= 1 and kernels.watch.total_ns > 0
    model.zero_grad()
    assert torch.allclose(first, bare(batch()), atol=1e-5)
    model.load_state_dict(kept)
    for _ in range(10):
        kernels.land({"compile": "default"})
        train(model, 1)
        kernels.land({"compile": "script"})
        train(model, 1)
    assert graphs() == after_first, "turned on again it must not be compiled again"
    assert list(model.state_dict()) == names
    fresh = net()
    model.load_state_dict(fresh.state_dict())
    assert train(model) == train(fresh)


def test_compile_and_autocast_together(quick):
    model = net()
    kernels = control(model)
    kernels.land({"compile": "default", "autocast": "bf16"})
    out = model(batch())
    assert out.dtype == torch.float32
    assert not torch.equal(out, net()(batch())) and torch.allclose(out, net()(batch()), atol=0.1)
    out.sum().backward()
    assert row(kernels, "autocast").in_force == "bf16" and row(kernels, "compile").in_force == "default"
    kernels.land({"autocast": "script"})
    assert torch.allclose(model(batch()), net()(batch()), atol=1e-5)


def test_saved_and_copied_models_are_clean(quick):
    class OwnState(Net):
        def __getstate__(self):
            return dict(self.__dict__)

    globals()["OwnState"] = OwnState
    OwnState.__qualname__ = "OwnState"
    for kind in (Net, OwnState):
        model = kind()
        control(model).land({"compile": "default"})
        model(batch())
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (torch.load(file, weights_only=False), copy.deepcopy(model)):
            assert other.__dict__.get("_compiled_call_impl") is None
            with torch.no_grad():
                other.two.bias.add_(1)
            assert not torch.allclose(other.eval()(batch()), model.eval()(batch()))


def test_the_scripts_own_in_place_compilation_is_what_script_means(quick):
    model = net()
    calls = []

    def own(*args):
        calls.append(1)
        return model._call_impl(*args)

    model.__dict__["_compiled_call_impl"] = own
    kernels = control(model)
    model(batch())
    assert calls == [1] and row(kernels, "compile").script == "on"
    kernels.land({"compile": "off"})
    model(batch())
    kernels.land({"compile": "default"})
    model(batch())
    assert calls == [1]
    kernels.land({"compile": "script"})
    model(batch())
    assert calls == [1, 1]


def test_the_scripts_own_wrapper(quick):
    inner = net()
    model = torch.compile(inner)
    model(batch())
    kernels, made = control(model), graphs()
    assert row(kernels, "compile").script == "on"
    kernels.land({"compile": "off"})
    seen = []
    inner.register_forward_hook(lambda *_: seen.append(torch.compiler.is_compiling()))
    model(batch())
    assert seen == [False] and graphs() == made
    kernels.land({"compile": "default"})
    assert torch.allclose(model(batch()), inner(batch()), atol=1e-5)
    assert list(model.state_dict()) == ["_orig_mod." + name for name in inner.state_dict()]


def test_compilations_are_told_apart_from_work(quick):
    model = net()
    kernels = control(model)
    begun, ended = [], []
    kernels.watch.on_begin, kernels.watch.on_end = lambda: begun.append(kernels.watch.began_ns), ended.append
    kernels.land({"compile": "default"})
    train(model, 4)
    assert len(begun) == len(ended) >= 1 and kernels.watch.began_ns is None
    assert sum(ended) == kernels.watch.total_ns > 0
    n = len(ended)
    train(model, 4)
    assert len(ended) == n


def test_torchs_limit_of_recompilations(quick):

    class Turning(Net):
        turn = "a"

        def forward(self, x):
            return super().forward(x) * (len(self.turn) if self.turn != "a" else 1)

    torch.manual_seed(0)
    model = Turning()
    kernels = control(model)
    kernels.land({"compile": "default"})
    limit = compiling.recompile_limit()
    for n in range(limit - 1):
        model.turn = "a" * (n + 1)
        model(batch())
    assert row(kernels, "compile").in_force == "default" and not kernels.take_notices()
    assert "recompiled %d times" % (limit - 2) in row(kernels, "compile").note
    model.turn = "a" * (limit + 1)
    model(batch())
    notice = kernels.take_notices()[0]
    assert "without compiling" in notice.reason and notice.setting.compile == "script"
    assert row(kernels, "compile").in_force == "off"
    with pytest.raises(Refused, match="torch's limit"):
        kernels.land({"compile": "default"})


def test_ours_does_not_count_against_the_scripts_limit(quick):
    import torch._dynamo.utils

    model, other = net(), net()
    kernels = control(model)
    other.compile(backend="aot_eager")
    other(batch())
    heard: list[str] = []
    torch._dynamo.callback.callback_handler.register_start_callback(lambda told: heard.append(str(told.compile_id)))
    kernels.land({"compile": "default"})
    model(batch())
    assert heard and all(name.endswith("/0") for name in heard), "a first compilation of a code object of its own"


def test_no_compiler_is_told_before(monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    model = net()
    kernels = control(model)
    with pytest.raises(Refused, match=r"no C\+\+ compiler \(/no/such/compiler\)"):
        kernels.land({"compile": "default"})
    assert "no C++ compiler" in row(kernels, "compile").reason
    kernels.land({"compile": "off"})


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_failing_compilation_runs_the_old_way_and_leaves_no_trace(monkeypatch, where):
    from torch._dynamo.backends.common import aot_autograd

    def fail(graph, inputs):
        raise RuntimeError("no such compiler")

    def as_it_is(graph, inputs):
        return graph.forward

    backend = aot_autograd(
        fw_compiler=fail if where == "forward" else as_it_is, bw_compiler=fail if where == "backward" else as_it_is
    )
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, mode=None: original(f, backend=backend))
    bare, model = net(0.3), net(0.3)
    kernels = control(model)
    torch.manual_seed(5)
    expected = train(bare, 3)
    kernels.land({"compile": "default"})
    torch.manual_seed(5)
    assert train(model, 3) == expected
    assert all(torch.equal(a, b) for a, b in zip(bare.state_dict().values(), model.state_dict().values(), strict=True))
    assert "no such compiler" in kernels.take_notices()[0].reason
    assert row(kernels, "compile").in_force == "off"


def test_a_backward_may_go_through_the_compiled_graph_again(quick):
    bare, model = net(), net()
    kernels = control(model)
    kernels.land({"compile": "default"})
    for _ in range(2):
        for module in (bare, model):
            out = module(batch())
            out.square().mean().backward(retain_graph=True)
            out.abs().mean().backward()
    for ours, plain in zip(model.parameters(), bare.parameters(), strict=True):
        assert torch.allclose(ours.grad, plain.grad, atol=1e-6)
    assert row(kernels, "compile").in_force == "default" and not kernels.take_notices()


def test_the_scripts_own_compilation_keeps_nothing_back_for_us(quick):
    """What torch does with graphs of others is left to it: there the second backward is refused, as without us."""
    model, other = net(), torch.compile(net().forward)
    kernels = control(model)
    kernels.land({"compile": "default"})
    other(batch()).mean().backward()
    out = other(batch())
    with pytest.raises(RuntimeError, match="donated"):
        out.square().mean().backward(retain_graph=True)


def test_gradients_kept_for_another_derivative_rule_it_out(quick):
    model = net()
    kernels = control(model)
    model(batch()).square().mean().backward(create_graph=True)
    with pytest.raises(Refused, match="create_graph"):
        kernels.land({"compile": "default"})
    kernels.land({"compile": "off"})
    model.zero_grad()
    kernels.land({"compile": "default"})


def test_data_parallel_only_on_the_wrapper(quick):
    outside = nn.DataParallel(net())
    kernels = control(outside)
    kernels.land({"compile": "default"})
    assert torch.allclose(outside(batch()), net()(batch()), atol=1e-5)

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.DataParallel(net())

        def forward(self, x):
            return self.inner(x)

    holder = Holder()
    with pytest.raises(Refused, match="DataParallel"):
        control(holder).land({"compile": "default"})


def test_the_module_is_freed_with_its_last_reference(quick):
    model = net()
    kernels = control(model)
    kernels.land({"compile": "default"})
    model(batch())
    gone = weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        del model
        assert gone() is None and kernels.roots == []
    finally:
        gc.enable()


def test_the_watch_hears_only_one_thread_at_a_time():
    class Told:
        class callback_trigger:
            _name_ = "DYNAMO"

        compile_id = "3/2"

    watch = compiling.CompileWatch(time.perf_counter_ns, threading.get_ident)
    watch._begun(Told)
    other = threading.Thread(target=lambda: (watch._begun(Told), watch._ended(Told)))
    other.start()
    other.join()
    assert watch.began_ns is not None
    watch._ended(Told)
    assert watch.began_ns is None and watch.recompiles == 1


def test_torch_that_goes_on_in_eager_mode_without_a_word(quick, monkeypatch):
    model, asked = net(), {"compile": "default"}
    kernels = control(model)
    with torch.compiler.set_stance("force_eager"):
        kernels.land(asked)
        assert kernels.compiled_nothing(asked) is None, "nothing was called yet"
        model(batch())
    assert kernels.compiled_nothing(asked) == "torch compiled nothing and went on in eager mode (it gives no reason)"
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert "TORCHDYNAMO_DISABLE is set" in (kernels.compiled_nothing(asked) or "")
    assert kernels.compiled_nothing({"autocast": "bf16"}) is None
    model(batch())
    assert kernels.compiled_nothing(asked) is None


def hook_on_a_part(model, seen):
    return model.one.register_forward_hook(lambda *_: seen.append(1))


def pre_hook_on_a_part(model, seen):
    return model.two.register_forward_pre_hook(lambda *_: seen.append(1))


def hook_on_the_root(model, seen):
    return model.register_forward_hook(lambda *_: seen.append(1))


def backward_hook_on_a_part(model, seen):
    return model.one.register_full_backward_hook(lambda *_: seen.append(1))


def hook_on_everything(model, seen):
    return nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(1) if m is model.one else None)


HOOKED = (hook_on_a_part, pre_hook_on_a_part, hook_on_the_root, backward_hook_on_a_part, hook_on_everything)


def test_hooks_run_that_came_after_it_was_compiled_and_those_that_were_compiled_in_stop(quick):
    model = net()
    early = model.two.register_forward_hook(lambda *_: None)
    kernels = control(model)
    kernels.land({"compile": "default"})
    train(model, 2)
    compiled, made = row(kernels, "compile").note, graphs()
    for hooked in HOOKED:
        seen: list[int] = []
        late = hooked(model, seen)
        train(model, 3)
        assert len(seen) == 3, hooked.__name__
        said = row(kernels, "compile")
        assert said.in_force == "off" and "uncompiled while" in said.note and "test_kernels_compile.py:" in said.note
        late.remove()
        train(model, 2)
        assert len(seen) == 3
        assert row(kernels, "compile")[:3] == ("compile", "off", "default") and row(kernels, "compile").note == compiled
    model.one.weight.register_hook(lambda grad: grad).remove()  # numbered as they are, and no hook of a module
    train(model, 1)
    assert row(kernels, "compile").in_force == "default"
    assert graphs() == made, "what was compiled runs again"
    early.remove()
    train(model, 1)
    assert "is gone" in row(kernels, "compile").note


def test_no_model_lives_on_because_its_hooks_hold_it():
    model = net()
    model.one.register_forward_hook(lambda *_, holder=model: None)
    hooks, alive = CompiledIn(torch), weakref.ref(model)
    assert not hooks.differ(model)
    del model
    gc.collect()
    assert alive() is None


def hook_on_a_tensor(model):
    return torch.ones(2, requires_grad=True).register_hook(lambda grad: grad)


def hook_on_what_a_leaf_gathers(model):
    return model.one.weight.register_post_accumulate_grad_hook(lambda _: None)


def hook_on_a_node_of_the_graph(model):
    return (model.one.weight * 2).grad_fn.register_hook(lambda *_: None)


def test_a_model_is_looked_through_only_where_a_hook_of_a_module_came_or_went(monkeypatch):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))
    model.one = model[0]
    handles = [part.register_forward_hook(lambda *_: None) for part in model]
    looked, look = [], CompiledIn._look
    monkeypatch.setattr(CompiledIn, "_look", lambda hooks, module: (looked.append(1), look(hooks, module))[1])
    hooks = CompiledIn(torch)
    assert not any(hooks.differ(model) for _ in range(20)) and len(looked) == 1
    for hooked in (hook_on_a_tensor, hook_on_what_a_leaf_gathers, hook_on_a_node_of_the_graph):
        for _ in range(3):
            handle = hooked(model)
            assert not hooks.differ(model)
            handle.remove()
            assert not hooks.differ(model)
        assert len(looked) == 1, hooked.__name__
    handles[13].remove()
    assert hooks.differ(model) and len(looked) == 2, "at the very next call, however many there are"


def another_dict(model):
    model.one._forward_hooks = {}


def another_dict_with_a_hook_in_it(model):
    model.one._forward_hooks = {"mine": lambda *_: None}


def emptied_by_hand(model):
    model.one._forward_hooks.clear()


def test_a_table_of_hooks_that_the_script_changes_by_hand_is_noticed_and_fails_nothing(quick):
    model = net()
    model.one.register_forward_hook(lambda *_: None)
    kernels = control(model)
    kernels.land({"compile": "default"})
    train(model, 1)
    before, table = dict(model.one._forward_hooks), model.one._forward_hooks
    for changed in (another_dict, another_dict_with_a_hook_in_it, emptied_by_hand):
        changed(model)
        train(model, 1)
        assert row(kernels, "compile").note.startswith("runs uncompiled"), changed.__name__
        table.update(before)
        model.one._forward_hooks = table
        train(model, 1)
        assert row(kernels, "compile").in_force == "default", changed.__name__
    assert not kernels.roots[0].notices
    model.one._forward_hooks = {**before, "plain": lambda *_: None}  # a plain one from the first call on
    hooks = CompiledIn(torch)
    assert not hooks.differ(model) and not hooks.differ(model)
    del model.one._forward_hooks["plain"]
    assert hooks.differ(model)


def test_code_that_is_made_anew_has_the_hooks_that_are_there_then(quick):
    model, seen = net(), []
    kernels = control(model)
    kernels.land({"compile": "default"})
    train(model, 1)
    kernels.land({"compile": "off"})
    late = model.one.register_forward_hook(lambda *_: seen.append(torch.compiler.is_compiling()))
    for times, mode in enumerate(("max-autotune", "default"), 1):
        kernels.land({"compile": mode})
        train(model, 2)
        assert row(kernels, "compile").in_force == mode and seen == [True] * 2 * times, "the hook is compiled in"
    late.remove()
    train(model, 1)
    assert "is gone" in row(kernels, "compile").note and not kernels.roots[0].notices


def test_what_fails_in_looking_for_hooks_is_no_failed_compile(quick, monkeypatch):
    def failing(*_):
        raise OSError("of ours")

    model, bare = net(), net()
    kernels = control(model)
    kernels.land({"compile": "default"})
    monkeypatch.setattr(late_hooks, "_filled", failing)
    assert train(model, 3) == train(bare, 3)
    root, said = kernels.roots[0], row(kernels, "compile")
    assert not root.notices and root.setting.compile == "default"
    assert said.in_force == "off" and said.note.startswith("runs uncompiled: ") and "of ours" in said.note


def test_what_a_failed_compile_falls_back_on_is_not_made_anew_in_the_same_call(quick, monkeypatch):
    made, compiled_call = [], compiling.compiled_call

    def compiled(torch, mode):
        made.append(mode)
        return compiled_call(torch, mode) if mode == "default" else failing

    def failing(*_):
        raise RuntimeError("no such mode here")

    monkeypatch.setattr(compiling, "compiled_call", compiled)
    model = net()
    kernels = control(model)
    kernels.land({"compile": "default"})
    train(model, 1)
    model.one.register_forward_hook(lambda *_: None)
    train(model, 1)
    kernels.land({"compile": "max-autotune"})
    train(model, 1)
    assert made == ["default", "max-autotune"] and kernels.roots[0].setting.compile == "default"
    train(model, 1)
    assert made == ["default", "max-autotune", "default"], "now that it is what is asked for, with the hook"
    assert row(kernels, "compile").in_force == "default"

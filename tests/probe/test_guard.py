"""The guard: whatever fails in a hook, the original runs exactly once, and only what is ours is swallowed."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from watched import Slow, SlowSGD, Stream, Watched, keep_torch, train_step

import cockpit.probe
from cockpit.probe import install as installing
from cockpit.probe.guard import Guard


def guarded(enter=lambda *_: "token", leave=lambda *_: None, fails=None):
    guard, calls = Guard(lambda: False), []

    def original(a, b=2):
        """Doc."""
        calls.append((a, b))
        if fails is not None:
            raise fails
        return a + b

    return guard, calls, guard.around("it", original, enter, leave)


def boom(*_):
    raise ValueError("ours")


@pytest.mark.parametrize("where", ["enter", "leave"])
def test_a_failing_hook_switches_itself_off_and_the_original_runs_once(where):
    guard, calls, replaced = guarded(**{where: boom})
    assert replaced(1) == 3 and calls == [(1, 2)]
    assert replaced(1, b=5) == 6 and calls == [(1, 2), (1, 5)]
    assert guard.reasons == {"it": "ValueError: ours"} and guard.failures == 1


@pytest.mark.parametrize("where", ["enter", "leave"])
@pytest.mark.parametrize("error", [KeyError("theirs"), StopIteration(), KeyboardInterrupt()])
def test_the_scripts_exceptions_pass_through_unchanged(where, error):
    _, calls, replaced = guarded(**{where: boom}, fails=error)
    with pytest.raises(type(error)) as caught:
        replaced(1)
    assert caught.value is error and error.__cause__ is None and calls == [(1, 2)]


def test_leave_hears_how_it_ended():
    heard = []
    _, _, replaced = guarded(leave=lambda token, result, error: heard.append((token, result, error)))
    replaced(1)
    assert heard == [("token", 3, None)]
    failure = KeyError("theirs")
    _, _, replaced = guarded(leave=lambda token, result, error: heard.append(error), fails=failure)
    with pytest.raises(KeyError):
        replaced(1)
    assert heard[-1] is failure


@pytest.mark.parametrize("where", ["enter", "leave"])
def test_an_exception_of_the_scripts_signal_handler_is_the_scripts(where):
    class Stop(Exception):
        pass

    def handler(number, frame):
        raise Stop

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGUSR1)
        return [None for _ in range(1000)]

    former = signal.signal(signal.SIGUSR1, handler)
    try:
        _, _, replaced = guarded(**{where: interrupted})
        with pytest.raises(Stop):
            replaced(1)
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_nothing_visible_differs():
    _, _, replaced = guarded()
    assert (replaced.__name__, replaced.__doc__, replaced.__module__) == ("original", "Doc.", __name__)
    assert str(inspect.signature(replaced)) == "(a, b=2)"


def test_what_torch_shows_of_itself_stays_the_same(it):
    module = sys.modules["torch.utils.data.dataloader"]
    assert str(inspect.signature(DataLoader)).startswith("(dataset: 'Dataset[_T_co]', batch_size: 'int | None' = 1")
    for function, name in (
        (DataLoader.__init__, "DataLoader.__init__"), (DataLoader.__iter__, "DataLoader.__iter__"),
        (module._BaseDataLoaderIter.__next__, "_BaseDataLoaderIter.__next__"), (torch.autograd.backward, "backward"),
        (nn.Module.__call__, "Module._wrapped_call_impl"), (torch.autograd.grad, "grad"),
    ):  # fmt: skip
        assert function.__qualname__ == name and function.__module__.startswith("torch.")
        assert inspect.getsource(function).lstrip().startswith("def ")


class Overlong(IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        return iter([torch.ones(1)] * 4)


def test_torchs_warnings_blame_the_scripts_line(it):
    loader = DataLoader(Overlong(), batch_size=1)
    len(loader)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in loader:
            pass
    assert {Path(w.filename).name for w in heard} == {"test_guard.py"}


@pytest.mark.parametrize(
    ("owner", "name", "off"),
    [
        ("_BaseDataLoaderIter", "__next__", "loaders"),
        ("_BaseDataLoaderIter", "_next_index", "samples"),
        ("DataLoader", "__iter__", "loaders"),
    ],
)
def test_a_torch_that_lacks_a_loaders_part_turns_that_off_with_the_reason(tmp_path, monkeypatch, owner, name, off):
    keep_torch(monkeypatch)
    module = sys.modules["torch.utils.data.dataloader"]
    monkeypatch.setattr(module, owner, type(owner, (), {}))
    before = dict(vars(module.DataLoader))
    probe = Watched(tmp_path).probe
    installing.patch(probe)
    assert off in probe.guard.reasons and "AttributeError" in probe.guard.reasons[off]
    assert "backward" not in probe.guard.reasons
    if off == "loaders":
        assert dict(vars(module.DataLoader)) == before  # all of it or nothing


@pytest.mark.parametrize(("part", "off"), [("autograd", "backward"), ("nn", "forward"), ("optimizer", "optimizer")])
def test_a_torch_that_lacks_another_part(tmp_path, monkeypatch, part, off):
    probe = Watched(tmp_path).probe
    if part == "autograd":
        monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
        del torch.autograd.backward
    elif part == "nn":
        monkeypatch.delattr(nn.Module, "_compiled_call_impl")
    else:
        monkeypatch.delattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_pre_hook")
    probe.guard.run(off, installing.parts_of(probe)[off])
    assert "AttributeError" in probe.guard.reasons[off]


def test_tracebacks_show_only_the_scripts_and_torchs_frames(it):
    class Bad(nn.Module):
        def forward(self, x):
            raise ArithmeticError("theirs")

    class Rotten:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            raise LookupError("theirs")

    def shown(work):
        try:
            work()
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            return [frame.filename for frame in frames]

    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    for batch in DataLoader(Stream(it, 8), batch_size=4):
        train_step(model, optimizer, batch)
    model.forward = Bad().forward
    failing = [
        lambda: next(iter(DataLoader(Rotten()))),
        lambda: DataLoader([1], batch_size=0),
        lambda: Bad()(1),
        lambda: model(torch.ones(1, 2)),
        lambda: torch.ones(2).backward(),
        lambda: iter(DataLoader([1], batch_sampler=object())),
    ]
    for work in failing:
        names = shown(work)
        assert len(names) > 1
        assert [n for n in names if "cockpit" in n and not n.endswith("test_guard.py")] == []


WATCHING = "asks changes hooks install link place probe pulse recorder reports roles roots streams training"


def test_broad_excepts_stand_in_the_guard_alone():
    """The swap mechanism beside it has to tell the script's failures from its own; nothing else catches broadly."""
    folder = Path(cockpit.probe.__file__).parent
    broad = re.compile(r"except (Base)?Exception\b|except:|suppress\((Base)?Exception")
    assert [name for name in WATCHING.split() if broad.search((folder / f"{name}.py").read_text())] == []
    assert broad.search((folder / "guard.py").read_text())


def test_a_training_whose_hook_fails_in_the_middle_goes_on_bare(it, monkeypatch):
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    monkeypatch.setattr("cockpit.probe.hooks.first_dimension", boom)
    seen = 0
    for batch in DataLoader(Stream(it, 24), batch_size=4):
        train_step(model, optimizer, batch)
        seen += len(batch)
    assert seen == 24
    assert it.probe.guard.reasons == {"loaders": "ValueError: ours"}
    it.probe.beat()
    assert [m["off"] for m in it.heard if m["m"] == "hello"][-1] == {"loaders": "ValueError: ours"}
    it.ask("c1", num_workers=1)
    it.probe.beat()
    change = [m for m in it.heard if m["m"] == "change"][-1]
    assert change["state"] == "refused" and "ValueError: ours" in change["reason"]
    knobs = [m for m in it.heard if m["m"] == "loaders"][-1]["loaders"][0]["knobs"]
    assert not any(k["can"] or k["can_now"] for k in knobs) and "ValueError: ours" in knobs[0]["reason"]
    tick = [m for m in it.heard if m["m"] == "tick"][-1]
    assert tick["wait_ns"] is None and tick["samples"] is None


def test_what_nobody_can_look_through_does_not_ask_whether_somebody_looks():
    class Plain:
        """A recorder without what trials bring."""

        thread, doing, charged, since, strays = None, None, 0, 0, 0
        clock, ident = staticmethod(lambda: 0), staticmethod(lambda: 0)

    guard, left = Guard(lambda: False), []
    timed = guard.timed("x", lambda value: value, "forward", Plain(), lambda *told: left.append(told))
    assert timed(3) == 3 and left == [(0, 0)] and not guard.reasons

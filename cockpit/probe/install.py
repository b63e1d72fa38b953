"""Puts the probe into a training: ``install(torch)`` is called once, when torch has finished importing.

It patches torch through the guard, each place on its own: a private name that is missing turns off what needs it,
with the reason. It must leave a process that is none of our business untouched, and must never raise.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, Callable

from ..model.names import ENV_LIFE, ENV_RUN
from . import at_import, late_starts, warm
from . import recorder as phases
from .handoff.session import LIVE
from .kernels.tracing import let_script
from .kernels.trial import watched
from .probe import Probe
from .samples import counting
from .saving import Spell
from .start import told
from .swap import take_stall_ns

_NOT_A_TRAINING = ("torch/_inductor/compile_worker", "multiprocessing/resource_tracker")


def patch(probe: Probe) -> None:
    """Puts everything in place, each part on its own: what this torch lacks is off, with the reason."""
    probe.recorder.on_step = probe.on_step
    probe.hooks.on_open, probe.hooks.is_worker, probe.hooks.stall_of = probe.on_open, probe.is_worker, take_stall_ns
    probe.hooks.on_forked = lambda: probe.guard.run("link", probe.pulse.resume)
    for name, part in parts_of(probe).items():
        probe.guard.run(name, part)
    probe.hooks.on_hold = probe.roots.on_hold = lambda: probe.guard.run("pause", probe.hold.take)
    forked = functools.partial(probe.guard.run, "pause", probe.hold.forked)
    os.register_at_fork(before=probe.before_fork, after_in_parent=forked, after_in_child=probe.in_child)
    atexit.register(probe.at_exit)


def parts_of(probe: Probe) -> dict[str, Callable[[], None]]:
    """What patches each part of torch, by the name under which it can be off."""
    torch, guard, recorder, hooks = probe.torch, probe.guard, probe.recorder, probe.hooks
    is_compiling = recorder.is_compiling

    def loaders() -> None:
        module = sys.modules["torch.utils.data.dataloader"]
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter
        opener = probe.changes.opener(loader.__iter__)
        init = guard.around("places", loader.__init__, hooks.entering_init, hooks.left_init)
        opened = guard.around("loaders", opener, hooks.entering_iter, hooks.left_iter, frames=2)
        fetched = guard.around("loaders", iterator.__next__, hooks.entering_next, hooks.left_next)
        length = guard.around("lengths", loader.__len__, probe.batching.length_asked, probe.batching.left_length)
        loader.__init__, loader.__iter__, loader.__len__, iterator.__next__ = init, opened, length, fetched

    def schedules() -> None:
        schedule = sys.modules["torch.optim.lr_scheduler"].LRScheduler
        noted = probe.batching.schedules
        schedule.__init__ = guard.around("schedules", schedule.__init__, noted.made, noted.left)

    def samples() -> None:
        iterator = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
        iterator._next_index = counting(iterator._next_index, is_compiling)

    def backward() -> None:
        after = probe.training.after_backward
        original = torch.autograd.backward
        on_trial = watched(original, recorder, guard.run)
        torch.autograd.backward = guard.timed("backward", original, phases.BACKWARD, recorder, after, on_trial=on_trial)

    def twice() -> None:
        noted = probe.kernels.twice
        torch.autograd.grad = guard.around("twice", torch.autograd.grad, noted.entering, noted.left)

    def optimizers() -> None:
        module = sys.modules["torch.optim.optimizer"]
        # is_compiling() itself makes Dynamo keep code that does nothing: one more compilation for each optimizer
        # whose step the script compiles. This one, which is as true while it traces, does not.
        traced = getattr(sys.modules["torch.nn.modules.activation"], "_is_make_fx_tracing", None)
        if traced is not None:
            recorder.is_traced = traced
            guard.codes.append(traced.__code__)
        recorder.has_optimizer = functools.partial(_ever_made, module.Optimizer)
        module.register_optimizer_step_pre_hook(recorder.before_optimizer_step)
        module.register_optimizer_step_post_hook(recorder.after_optimizer_step)

    def saving() -> None:
        module: Any = sys.modules["torch.serialization"]
        saves = Spell(recorder, phases.SAVE)
        module.save = torch.save = guard.around("saving", torch.save, saves.entering, saves.left)

    def workers() -> None:
        watchdog = sys.modules["torch.utils.data._utils.worker"].ManagerWatchdog
        entering, left = late_starts.entering, late_starts.left
        watchdog.__init__ = guard.around("workers", watchdog.__init__, entering, left)

    def endings() -> None:
        workers = sys.modules["torch.utils.data.dataloader"]._MultiProcessingDataLoaderIter
        ends = Spell(recorder, phases.LOADER_END)
        workers._shutdown_workers = guard.around("endings", workers._shutdown_workers, ends.entering, ends.left)

    def forward() -> None:
        if not hasattr(torch.nn.Module, "_compiled_call_impl"):
            raise AttributeError("nn.Module has no _compiled_call_impl")
        probe.roots.search()

    return {
        "loaders": loaders, "schedules": schedules, "samples": samples, "backward": backward,
        "twice": twice, "optimizer": optimizers, "saving": saving, "workers": workers, "endings": endings,
        "forward": forward, "scripting": let_script, "dynamo": lambda: _unseen_by_dynamo(torch, guard.codes),
    }  # fmt: skip


def install(torch: Any, standing: Mapping[str, bytes] | None = None) -> Probe | None:
    """The probe for this process, or None where it is none of our business. ``standing``: what the kernel told of it
    when torch was about to be imported."""
    if not os.environ.get(ENV_RUN) or any(part in " ".join(sys.argv) for part in _NOT_A_TRAINING):
        return None
    probe = Probe(torch)
    start = told(os.environ[ENV_RUN])
    probe.origin = probe.guard.run("origin", at_import.greeting, start, os.environ, torch, standing) or {}
    probe.guard.run("changes", probe.asks.start, start)
    probe.guard.run("handoff", probe.handoff.start, start)
    LIVE[:] = [probe.handoff]
    patch(probe)
    life = os.environ.get(ENV_LIFE)
    first_step = functools.partial(warm.first_step, life or os.environ[ENV_RUN], later=bool(life))
    probe.pulse.first = functools.partial(probe.guard.run, "lives", first_step)
    if not probe.child:
        probe.guard.run("link", probe.link.pump)
    return probe


def _ever_made(optimizer: Any) -> bool:
    """Whether an optimizer of any class was made: each class's ``step`` is wrapped when its first one is."""
    todo = [optimizer]
    while todo:
        kind = todo.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        todo.extend(type.__subclasses__(kind))
    return False


def _unseen_by_dynamo(torch: Any, codes: list[CodeType]) -> None:
    """Tells Dynamo's frame evaluation to leave our own frames alone, without importing Dynamo.

    Else, after a graph break, it would compile the probe's functions as if they were the script's.
    """
    frames = torch._C._dynamo.eval_frame
    skip = getattr(frames, "skip_code", None)  # its name in older torch
    if skip is None:
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        skip = functools.partial(_set_strategy, frames, strategy)
    package = __name__.rsplit(".", 2)[0] + "."
    ours = [m for name, m in list(sys.modules.items()) if name.startswith(package) and isinstance(m, ModuleType)]
    for code in [*codes, *(code for module in ours for code in _codes(module))]:
        skip(code)


def _set_strategy(frames: Any, strategy: Any, code: CodeType) -> None:
    frames.set_code_exec_strategy(code, strategy)


def _codes(module: ModuleType) -> list[CodeType]:
    found: list[CodeType] = []
    todo: list[Any] = [v for v in vars(module).values() if getattr(v, "__module__", None) == module.__name__]
    while todo:
        item = todo.pop()
        if isinstance(item, (staticmethod, classmethod, property)):
            item = getattr(item, "__func__", None) or getattr(item, "fget", None)
        if isinstance(item, type):
            todo.extend(vars(item).values())
        elif isinstance(item, FunctionType):
            # what contextlib makes of ours bears our name, and its code is everybody's: that stays as Dynamo finds it
            todo.append(getattr(item, "__wrapped__", item.__code__))
        elif isinstance(item, CodeType):
            found.append(item)
            todo.extend(c for c in item.co_consts if isinstance(c, CodeType))
    return found

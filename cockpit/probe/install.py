"""Puts the probe into a training: ``install(torch)`` is called once, when torch has finished importing.

It wires recorder, hooks, changes, link and pulse together and patches torch through the guard. Private names of
torch are checked first; one that is missing turns off what needs it, with the reason. It must leave a process that
does not train, a loader worker, and a forked child untouched, and must never raise.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import platform
import sys
import time
from types import CodeType, FunctionType, ModuleType
from typing import Any, Optional

from ..model.names import ENV_RUN, ENV_SOCKET, SCHEMA, START_FILE
from . import recorder as phases
from .changes import Changes
from .guard import Guard
from .hooks import LoaderHooks
from .link import Link
from .pulse import Pulse
from .recorder import Recorder
from .reports import Blocks, Ticks, loader_message, trains
from .roles import Roles
from .roots import Roots
from .streams import Registry
from .swap import LoaderControl, take_stall_ns
from .swap import install as install_mechanism

_NOT_A_TRAINING = ("_inductor/compile_worker", "torch/_inductor", "multiprocessing/resource_tracker")


class Probe:
    """Everything of one process. Made by ``install``; tests make their own with a fake clock."""

    def __init__(self, torch: Any, environ: Any = os.environ, clock: Any = time.perf_counter_ns) -> None:
        self.torch = torch
        self.clock = clock
        self._environ = environ
        self.recorder = Recorder(clock)
        self.guard = Guard(torch.compiler.is_compiling)
        self.roles = Roles()
        self.registry = Registry()
        self.mechanism = install_mechanism(torch)
        self.changes = Changes(
            self.recorder, self.registry, lambda loader: LoaderControl(self.mechanism, loader)
        )
        self.hooks = LoaderHooks(
            self.recorder, self.roles, self.registry, self.changes, os.path.dirname(torch.__file__)
        )
        self.roots = Roots(torch, self.guard, self.recorder, self.roles)
        self.pulse = Pulse(lambda: self.guard.run("link", self.beat))
        self.blocks = Blocks()
        self.ticks = Ticks(self.recorder)
        self.link = self._new_link()
        self.child = multiprocessing.parent_process() is not None
        self._said_off = 0
        self._said_trains = False

    def _new_link(self) -> Link:
        return Link(self._environ.get(ENV_SOCKET, ""), self.clock, self.greeting)

    # ---- what the engine is told ----

    def greeting(self) -> list[dict[str, Any]]:
        """hello, loaders, and the last word on each change: begins every connection."""
        self._said_off = self.guard.failures
        self._said_trains = trains(self.registry.records.values()) or self.recorder.steps > 0
        hello = {
            "m": "hello", "schema": SCHEMA, "pid": os.getpid(), "ppid": os.getppid(), "rank": self._number("RANK"),
            "world": self._number("WORLD_SIZE"), "python": platform.python_version(),
            "torch": str(self.torch.__version__), "argv": list(getattr(sys, "orig_argv", sys.argv)),
            "accelerator": self._accelerator(), "t_ns": self.clock(), "trains": self._said_trains,
            "off": dict(self.guard.reasons),
        }  # fmt: skip
        last = [ask.last for ask in list(self.changes.asks.values()) if ask.last is not None]
        return [hello, loader_message(self.registry.records.values()), *last]

    def _number(self, name: str) -> Optional[int]:
        text = self._environ.get(name, "")
        return int(text) if text.isdigit() else None

    def _accelerator(self) -> Optional[str]:
        """Only what the training has initialised itself: asking for more would initialise it, and break forks."""
        for name in ("cuda", "xpu", "hpu", "npu"):
            module = sys.modules.get("torch." + name)
            if module is not None and getattr(module, "is_initialized", lambda: False)():
                return name
        return None

    # ---- the heartbeat ----

    def beat(self) -> None:
        """In the probe's thread: tick, blocks, news; then the socket."""
        now = self.clock()
        self._adopt_stray_thread()
        self.changes.tick(now)
        self._gather(now)
        self._exchange()
        self.hooks.look_due = True

    def _gather(self, now: int) -> None:
        recorder, link = self.recorder, self.link
        wait, forward = not recorder.read_ahead, recorder.forward_seen
        if self.guard.failures != self._said_off or not self._said_trains:
            for message in self.greeting()[:1]:
                link.say(message)
        marks = []
        while recorder.done:
            marks.append(recorder.done.popleft())
        for block in self.blocks.feed(marks, wait, forward):
            link.say(block)
        for news in (self.hooks.news, self.changes.moved):
            while news:
                link.say(news.popleft())
        if self.changes.news:
            self.changes.news = False
            link.say(loader_message(self.registry.records.values()))
        link.say(self.ticks.read(now, self.hooks))

    def _adopt_stray_thread(self) -> None:
        """Training has moved to another thread: watch that one."""
        recorder = self.recorder
        if recorder.strays > 3 and recorder.backwards == self._backwards_seen:
            recorder.thread = None
            recorder.leave_steps(recorder.last_update_ns)
        recorder.strays, self._backwards_seen = 0, recorder.backwards

    _backwards_seen = 0

    def _exchange(self) -> None:
        for message in self.link.pump():
            self.guard.run("changes", self.changes.receive, message)

    # ---- moments of the process ----

    def on_step(self) -> None:
        """A step has ended: the search for roots is over, and the thread may live."""
        if self.roots.searching:
            self.guard.run("forward", self.roots.settle)
        if not self.pulse.running and self.pulse.wanted:
            if self.is_worker():
                return
            self.guard.run("link", self.pulse.start)

    def on_open(self) -> None:
        """A loader is being iterated and no thread runs yet: hear what was asked before the first step."""
        if not self.pulse.running and not self.child:
            while self.changes.moved:
                self.link.say(self.changes.moved.popleft())
            self._exchange()

    def is_worker(self) -> bool:
        """Whether this process is torch's loader worker: then it is inert for ever."""
        if not self.child or self.torch.utils.data.get_worker_info() is None:
            return False
        self.pulse.wanted = False
        self.recorder.thread = -1
        return True

    def before_fork(self) -> None:
        self.guard.run("link", self.pulse.stop)

    def in_child(self) -> None:
        self.guard.run("link", self._start_over)

    def _start_over(self) -> None:
        self.child = True
        self.pulse.forget()
        self.link.close()
        self.link = self._new_link()
        self.recorder.reset()
        self.roles.__init__()  # type: ignore[misc]
        self.blocks, self.ticks = Blocks(), Ticks(self.recorder)
        self.hooks.news.clear()
        self.changes.moved.clear()

    def at_exit(self) -> None:
        """Flush what is left without waiting."""
        self.guard.run("link", self._last_words)

    def _last_words(self) -> None:
        self.pulse.stop(0.03)
        self.pulse.wanted = False
        if self.recorder.steps or self.link.connected:
            stream = self.recorder.stream
            if stream is not None:
                self.hooks.ended(stream, self.recorder.last_update_ns)
            self._gather(self.clock())
        if self.recorder.steps or not self.child:
            self._exchange()
        self.link.close()

    # ---- patching ----

    def patch(self) -> None:
        """Puts everything in place, each part on its own: what this torch lacks is off, with the reason."""
        self.recorder.on_step = self.on_step
        self.hooks.on_open, self.hooks.is_worker = self.on_open, self.is_worker
        self.hooks.stall_of = take_stall_ns
        for name, part in (
            ("loaders", self._patch_loaders),
            ("samples", self._patch_samples),
            ("backward", self._patch_backward),
            ("optimizer", self._patch_optimizers),
            ("forward", self._patch_forward),
            ("compile", lambda: _unseen_by_dynamo(self.torch)),
        ):
            self.guard.run(name, part)
        os.register_at_fork(before=self.before_fork, after_in_child=self.in_child)
        atexit.register(self.at_exit)

    def _patch_loaders(self) -> None:
        guard, hooks = self.guard, self.hooks
        module = sys.modules["torch.utils.data.dataloader"]
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter
        init = guard.around("places", loader.__init__, hooks.entering_init, hooks.left_init)
        opened = guard.around(
            "loaders", self.changes.opener(loader.__iter__), hooks.entering_iter, hooks.left_iter
        )
        fetched = guard.around("loaders", iterator.__next__, hooks.entering_next, hooks.left_next)
        loader.__init__, loader.__iter__, iterator.__next__ = init, opened, fetched

    def _patch_samples(self) -> None:
        iterator = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
        iterator._next_index = self.hooks.count_index(iterator._next_index, self.torch.compiler.is_compiling)

    def _patch_backward(self) -> None:
        autograd, hooks = self.torch.autograd, self.hooks
        autograd.backward = self.guard.timed(
            "backward", autograd.backward, phases.BACKWARD, self.recorder, hooks.after_backward
        )

    def _patch_optimizers(self) -> None:
        optimizer = sys.modules["torch.optim.optimizer"]
        before, after = optimizer_hooks(self.recorder, self.torch.compiler.is_compiling)
        optimizer.register_optimizer_step_pre_hook(before)
        optimizer.register_optimizer_step_post_hook(after)

    def _patch_forward(self) -> None:
        if not hasattr(self.torch.nn.Module, "_compiled_call_impl"):
            raise AttributeError("nn.Module has no _compiled_call_impl")
        self.roots.search()


def optimizer_hooks(recorder: Recorder, is_compiling: Any) -> tuple[Any, Any]:
    """torch's global optimizer hooks: two clock readings and some additions, nothing that could fail."""

    def before_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            recorder.optimizer_entered()

    def after_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            recorder.optimizer_left()

    return before_optimizer_step, after_optimizer_step


def install(torch: Any) -> Optional[Probe]:
    """The probe for this process, or None where it is none of our business."""
    if not os.environ.get(ENV_RUN) or any(part in " ".join(sys.argv) for part in _NOT_A_TRAINING):
        return None
    probe = Probe(torch)
    probe.guard.run("changes", probe.changes.start, _told(os.environ[ENV_RUN]))
    probe.patch()
    if not probe.child:
        probe.guard.run("link", probe.link.pump)
    return probe


def _told(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, START_FILE), encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _unseen_by_dynamo(torch: Any) -> None:
    """Tells Dynamo's frame evaluation to leave our own frames alone, without importing Dynamo.

    Else, after a graph break, it would compile the probe's functions as if they were the script's.
    """
    frames = torch._C._dynamo.eval_frame
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    package = __name__.rsplit(".", 2)[0] + "."
    for name, module in list(sys.modules.items()):
        if name.startswith(package) and isinstance(module, ModuleType):
            for code in _codes(module):
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
            todo.append(item.__code__)
        elif isinstance(item, CodeType):
            found.append(item)
            todo.extend(c for c in item.co_consts if isinstance(c, CodeType))
    return found

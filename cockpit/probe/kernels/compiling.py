"""Compiles one module's call for its slot, and watches what torch compiles: how long, how often, how near its limit.

Called by ``root`` when ``compile`` was asked for; the watch by the hooks. Dynamo is imported only then, in the
training's thread. The compiled function is handed the module at each call and holds none; it has its own code object,
so that its recompilations never count against the script's own.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import os
import re
import shutil
import sys
from types import FunctionType
from typing import Any, Callable, NamedTuple

from ..groups import Refused

OFF = "off"
CHOICES = (OFF, "default", "reduce-overhead", "max-autotune")
COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "torch._functorch.config")
DONATED = "collect_bw_donated_buffer_idxs"
FILE = "<cockpit: the module's call, compiled>"


def _call(module: Any, args: Any, kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def compiled_call(torch: Any, mode: str) -> Callable[[Any, Any, Any], Any]:
    """A function (module, args, kwargs) that compiles at its first call; one more code object of its own each time."""
    code = _call.__code__.replace(co_filename=FILE)
    compiled: Callable[[Any, Any, Any], Any] = torch.compile(
        FunctionType(code, {"__builtins__": builtins}, "call"), mode=mode
    )
    return compiled


def check(torch: Any, module: Any, device: str, mode: str) -> None:
    """Raises Refused where ``mode`` is known not to work on ``module``."""
    if mode == OFF:
        return
    reason = missing_compiler(device)
    if reason is not None:
        raise Refused(reason)
    if isinstance(module, torch.jit.ScriptModule):
        raise Refused("the model is TorchScript")
    if any(isinstance(part, torch.nn.parallel.DataParallel) for part in module.modules() if part is not module):
        raise Refused("DataParallel is inside the model: its copies would share one compiled call")


def missing_compiler(device: str) -> str | None:
    """Why torch could not build what it generates for this device, or None. Only looks for programs."""
    if device == "cpu":
        found = any(shutil.which(word) for word in (os.environ.get("CXX") or "g++").split()[:1])
        return (
            None
            if found
            else "no C++ compiler (%s): torch.compile needs one on the CPU" % (os.environ.get("CXX") or "g++")
        )
    if device == "cuda" and not any(shutil.which(word) for word in ("gcc", "clang", os.environ.get("CC") or "cc")):
        return "no C compiler (cc): Triton needs one"
    return None


def why_nothing() -> str:
    """Why torch may run on in eager mode without a word, although it was told to compile."""
    if os.environ.get("TORCHDYNAMO_DISABLE", "") not in ("", "0"):
        return "TORCHDYNAMO_DISABLE is set"
    if getattr(sys.modules.get("torch._dynamo.config"), "suppress_errors", False):
        return "the script has errors of torch.compile suppressed"
    return "it gives no reason"


def load(watch: CompileWatch) -> None:
    """Imports Dynamo and inductor (seconds, the first time): now, rather than in the middle of a step."""
    missing = [name for name in COMPILER if name not in sys.modules]
    began = bool(missing) and watch.begin()
    try:
        for name in missing:
            importlib.import_module(name)
    finally:
        watch.end(began)
    watch.attach()
    _keep_for_another_backward()


def backward_with_forward() -> Any:
    """Inside, the backward is compiled together with its forward: a failure falls into the forward, where the call
    can still be run the old way."""
    config = sys.modules.get("torch._functorch.config")
    if not hasattr(config, "force_non_lazy_backward_lowering"):
        return contextlib.nullcontext()
    return config.patch(force_non_lazy_backward_lowering=True)  # type: ignore[union-attr]


def _keep_for_another_backward() -> None:
    """What ``backward_with_forward`` compiles must not overwrite what the forward kept for it: only at its first run
    does torch know whether the script goes through the same graph again (``retain_graph``), and raises later."""
    making = sys.modules.get("torch._functorch._aot_autograd.graph_compile")
    config = sys.modules["torch._functorch.config"]
    collect = getattr(making, DONATED, None)
    if collect is None or not hasattr(config, "force_non_lazy_backward_lowering") or hasattr(collect, "__wrapped__"):
        return

    @functools.wraps(collect)
    def collected(*args: Any, **kwargs: Any) -> Any:
        return [] if config.force_non_lazy_backward_lowering else collect(*args, **kwargs)

    setattr(making, DONATED, collected)


class Found(NamedTuple):
    """Compilations that are over; None where some of it cannot be known."""

    total_ns: int | None
    graphs: int | None
    recompiles: int | None


class CompileWatch:
    """What torch has compiled in this process since ``attach``, by whoever.

    ``total_ns`` of finished compilations; ``began_ns`` while one is under way in ``thread``. ``on_end(ns)`` is called
    in the compiling thread as the outermost ends. ``recompiles``: compilations of a piece of code after its first.
    """

    def __init__(self, clock: Callable[[], int], ident: Callable[[], int]) -> None:
        self._clock = clock
        self._ident = ident
        self._depth = 0
        self.attached = False
        self.on_begin: Callable[[], None] = lambda: None
        self.on_end: Callable[[int], None] = lambda spent_ns: None
        self.began_ns: int | None = None
        self.thread = 0
        self.total_ns = self.recompiles = 0
        self.ours = 0
        """Graphs that were made for a module's own slot, because ``compile`` was asked for."""
        self._graphs_before = 0
        self._complete = True
        self.heard: list[int] | None = None
        """While somebody listens: the number of each compilation of its piece of code, from 0."""

    def attach(self) -> bool:
        """Begins to watch, if Dynamo has been imported and has what is needed; whether it watches."""
        module = sys.modules.get("torch._dynamo.callback")
        handler = getattr(module, "callback_handler", None)
        if not self.attached and handler is not None:
            handler.register_start_callback(self._begun)
            handler.register_end_callback(self._ended)
            self.attached = True
            self._complete = not graphs_made()
        return self.attached

    def found(self) -> Found:
        """What is over. Also called by the probe's thread: only reads."""
        graphs = graphs_made()
        if not self.attached:
            return Found(self.total_ns, 0, 0) if not graphs else Found(None, graphs, None)
        graphs = max(0, graphs - self._graphs_before)
        return Found(self.total_ns, graphs, self.recompiles) if self._complete else Found(None, graphs, None)

    def script_compiled(self) -> bool:
        """Whether the script itself has had anything compiled in this process."""
        made = graphs_made()
        return made > self.ours or (bool(_stats()) and not made)

    def restart(self) -> None:
        """In a forked child: what its parent has compiled is not its own."""
        self.total_ns = self.recompiles = self._depth = 0
        self.began_ns, self._complete = None, True
        self._graphs_before = graphs_made()

    def _begun(self, told: Any) -> None:
        if not self.begin():
            return
        # an Enum's ``name`` is Python code, which Dynamo would look at where it runs a backward: its plain attribute
        if told.callback_trigger._name_ == "DYNAMO":
            number = _number(told.compile_id)
            self.recompiles += number > 0
            if self.heard is not None:
                self.heard.append(number)

    def _ended(self, told: Any) -> None:
        self.end(bool(self._depth) and self._ident() == self.thread)

    def begin(self) -> bool:
        """Compiling begins in this thread; False where another thread is at it."""
        if self._depth and self._ident() != self.thread:
            return False
        self._depth += 1
        if self._depth == 1:
            self.thread, self.began_ns = self._ident(), self._clock()
            self.on_begin()
        return True

    def end(self, begun: bool) -> None:
        """What ``begin`` began is over."""
        if not begun:
            return
        self._depth -= 1
        if self._depth == 0 and self.began_ns is not None:
            spent, self.began_ns = self._clock() - self.began_ns, None
            self.total_ns += spent
            self.on_end(spent)


def keep_apart(recorder: Any, watch: CompileWatch) -> None:
    """While torch compiles in the training's thread, whoever asked for it, that is no phase and no part of a step."""
    was = [""]

    def begun() -> None:
        if recorder.thread is None or recorder.thread == watch.thread:
            was[0], recorder.doing, recorder.since = recorder.doing, "compile", recorder.clock()

    def ended(spent_ns: int) -> None:
        if recorder.doing == "compile" and recorder.thread in (None, watch.thread):
            recorder.doing, recorder.since = was[0], recorder.clock()
            recorder.leave_out(spent_ns)

    watch.on_begin, watch.on_end = begun, ended


def graphs_made() -> int:
    """Graphs that Dynamo has handed to a compiler in this process, by its own count."""
    return int(_stats().get("unique_graphs", 0))


def _stats() -> Any:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return (counters.get("stats") or {}) if counters else {}


def _number(compile_id: str) -> int:
    """Of ``2/5`` or ``2/5_1``: 5, the how manieth compilation of that piece of code this is, from 0."""
    found = re.search(r"\d+/(\d+)", str(compile_id))
    return int(found.group(1)) if found else 0


def recompile_limit() -> int:
    """How often torch compiles one piece of code before it goes on without."""
    config = sys.modules.get("torch._dynamo.config")
    return int(getattr(config, "recompile_limit", 8))


def wrapped_by_compile(module: Any) -> Any:
    """The script's own module inside ``torch.compile(module)``, or None."""
    kind = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    return module._modules["_orig_mod"] if kind is not None and isinstance(module, kind) else None

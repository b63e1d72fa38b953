"""One change of the kernels while it settles: what can be put back, what has gone wrong, a backward that fails.

Begun by ``landing`` where a change lands, asked at each step's end, dropped when the change is kept or another lands.
``watched`` stands in for ``torch.autograd.backward`` only as long, or while somebody else wants to look at it. It acts
in the training's thread alone, and must never swallow what the script would have met without us.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ...model.knobs import SCRIPT, Value
from ..aside import Aside
from ..guard import _raised_by_signal_handler as raised_by_signal_handler
from ..outcomes import why
from ..recorder import Recorder
from . import snapshot
from .autocast import inside_backward, scaler_in_use
from .finite import Finiteness, is_finite

CONCERNED = ("autocast", "compile", "matmul")
"""Knobs that change what is computed. A batch size that diverges is the user's own affair."""
LEAST_STEPS, LEAST_NS = 1000, 600_000_000_000
"""Without any word that the change is kept (no engine runs), after both it is."""
NOT_BACK = "copies of the script's own (such as an EMA)"
SCHEDULE = "the learning rate's schedule"
UNDONE = "cannot be undone if it diverges"
LOOKED_AT = 3
"""In so many steps gradients that are not finite are found at once: scripts look at theirs before they update, and end
themselves. Waits for the device."""


def concerns(kernels: Mapping[str, Value]) -> bool:
    """Whether a change may make a training diverge: it sets something, and not back to what the script has."""
    return any(kernels.get(name, SCRIPT) != SCRIPT for name in CONCERNED)


class Trial:
    """``found`` is what has gone wrong; ``put_back`` brings the state of its first step back, and says it in words."""

    def __init__(self, torch: Any, recorder: Recorder, ask: Any, modules: Iterable[Any], scheduled: bool) -> None:
        self.ask = ask
        self.failed: str | None = None
        """Why a backward could not be run under it."""
        self.on_failure: Callable[[], None] = lambda: None
        self.has_run: Callable[[], bool] = lambda: True
        """Whether a forward has run under it: where forwards end the steps, the first backward is of one before."""
        self._is_old = False
        self.torch = torch
        self._recorder = recorder
        self._step, self._began_ns = recorder.steps, recorder.clock()
        self._scheduled = scheduled
        modules = list(modules)
        self._modules = [weakref.ref(module) for module in modules]
        self._gradients: list[tuple[weakref.ref[Any], Any]] | None = None
        self._proven_step: int | None = None
        optimizers = recorder.living_optimizers()
        tensors = snapshot.trained(modules, optimizers)
        self._scaled = scaler_in_use(torch)
        """Then gradients that are not finite are the scaler's own affair, and usual in its first steps."""
        self._cleared: tuple[int, str, weakref.ref[Any], int] | None = None
        """Gradients were set to 0 since they were not finite: how many updates there had been, what had become so, a
        parameter and the version of its gradient."""
        self._finite = Finiteness(torch, [p for module in modules for p in module.parameters() if p.requires_grad])
        self.snapshot: snapshot.Snapshot | None = None
        self.reason = self._take(modules, optimizers, snapshot.sizes(torch, tensors, optimizers))

    def _take(self, modules: list[Any], optimizers: list[Any], sizes: Mapping[Any, int]) -> str | None:
        """The copy, or why there is none."""
        if any(device.type == "cuda" for device in sizes) and self.torch.cuda.is_current_stream_capturing():
            return "the training records a CUDA graph"
        found = snapshot.room(self.torch, sizes)
        if found.reason is None:
            try:
                self.snapshot = snapshot.Snapshot(self.torch, modules, optimizers, found)
            except (RuntimeError, MemoryError) as error:
                return "its state could not be copied: %s" % why(error)
        return found.reason

    # ---- each backward ----

    def before_backward(self, tensors: Any) -> None:
        """What it starts from; and until a whole step's have run under the change, the gradients that are there."""
        new = self._proven_step in (None, self._recorder.steps)
        self._gradients = self._kept_gradients() if new else None
        if self._was_skipped():
            self._cleared = None
        self._is_old = not self.has_run()
        if self._is_old:
            self._finite.was(tensors)
        else:
            self._finite.loss(self._recorder.steps, tensors)

    def _was_skipped(self) -> bool:
        """Whether the script has dropped itself what was set to 0, and updated nothing with it."""
        if self._cleared is None or self._recorder.optimizer_steps > self._cleared[0]:
            return False
        gradient = getattr(self._cleared[2](), "grad", None)
        return gradient is None or gradient._version != self._cleared[3]

    def _kept_gradients(self) -> list[tuple[weakref.ref[Any], Any]] | None:
        copy = Aside(self.torch).copy
        try:
            return [(weakref.ref(p), None if p.grad is None else copy(p.grad)) for p in self._parameters()]
        except (RuntimeError, MemoryError):  # no memory for it
            return None

    def after_backward(self) -> None:
        """It has run."""
        if self._is_old:
            self._finite.was_after()
            return
        if self._proven_step is None:
            self._proven_step = self._recorder.steps
        self._finite.gradients(self._recorder.steps)
        if self._recorder.steps - self._proven_step < LOOKED_AT and self._finite.was_finite and not self._scaled:
            self._clear()

    def _clear(self) -> None:
        """Gradients that are not finite become 0, all of them: whether it diverges is judged at the step's end."""
        cuda = self.torch.cuda
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return
        with self.torch.no_grad():
            found = [p for p in self._parameters() if p.grad is not None and not p.grad.is_sparse]
            if all(is_finite(parameter.grad) for parameter in found):
                return
            for parameter in found:
                parameter.grad.zero_()
        ref, version = weakref.ref(found[0]), found[0].grad._version
        self._cleared = (self._recorder.optimizer_steps, self._finite.words(), ref, version)

    def _spoilt(self) -> str | None:
        """Gradients that were not finite would have gone into an update: that is no batch that is skipped."""
        if self._cleared is None or self._recorder.optimizer_steps <= self._cleared[0]:
            return None
        return self._cleared[1]

    def backward_failed(self, error: Exception) -> bool:
        """In the first step under the change: it goes back, and the step has no gradients. Else it is the script's."""
        if self._gradients is None or self.failed is not None:
            return False
        with self.torch.no_grad():
            for ref, kept in self._gradients:
                parameter = ref()
                if parameter is not None:  # zeros, not None: scripts look at their gradients, scalers insist on some
                    parameter.grad = self.torch.zeros_like(parameter) if kept is None else kept.clone()
        self._gradients = None
        inner = getattr(error, "inner_exception", None)
        words = why(inner if isinstance(inner, Exception) else error)
        self.failed = "%s (in backward: this step's gradients counted as 0)" % words
        self.on_failure()
        return True

    def _parameters(self) -> list[Any]:
        modules = (ref() for ref in self._modules)
        return [p for module in modules if module is not None for p in module.parameters() if p.requires_grad]

    # ---- between two steps ----

    def found(self) -> str | None:
        """What has gone wrong, in words; None where nothing has."""
        return self.failed or self._spoilt() or self._finite.found()

    def is_over(self) -> bool:
        """Nobody has said for long that it is kept, and nothing was wrong with it."""
        recorder = self._recorder
        return recorder.steps - self._step > LEAST_STEPS and recorder.clock() - self._began_ns > LEAST_NS

    def leave_out(self, spent_ns: int) -> None:
        """So long the training was paused: that is none of its time."""
        self._began_ns += spent_ns

    def put_back(self, words: str) -> str:
        """The state from before the change, where it was kept; the whole reason."""
        if self.failed is not None:
            return words
        steps = self._recorder.steps - self._step + bool(self._recorder.updates)
        lost = {0: "no update is", 1: "the update of 1 step is"}.get(steps, "the updates of %d steps are" % steps)
        self._drop_gradients()
        if self.snapshot is None:
            return "%s; it cannot be undone (%s): what it did to the parameters stays" % (words, self.reason)
        missing = [*([SCHEDULE] if self._scheduled else []), *self.snapshot.put_back(), NOT_BACK]
        step = format(self._step, ",").replace(",", " ")
        return "%s: back to step %s: %s lost; not put back: %s" % (words, step, lost, ", ".join(missing))

    def _drop_gradients(self) -> None:
        """Those that are not finite would spoil the next update, where the script adds up over several batches."""
        with self.torch.no_grad():
            for parameter in self._parameters():
                gradient = parameter.grad
                if gradient is not None and not gradient.is_sparse and not is_finite(gradient):
                    gradient.zero_()


def watched(original: Callable[..., Any], recorder: Recorder, run: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.autograd.backward``, with the change on trial looking on. Called in the training's thread alone.

    ``run`` is the guard's.
    """

    def backward(*args: Any, **kwargs: Any) -> Any:
        trial, look = recorder.trial, recorder.on_backward
        if look is not None:
            look(args[0] if args else kwargs.get("tensors"))
        if trial is None or recorder.thread is None or inside_backward(trial.torch):
            return original(*args, **kwargs)
        run("trial", trial.before_backward, args[0] if args else kwargs.get("tensors"))
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            if raised_by_signal_handler(error.__traceback__) or not run("trial", trial.backward_failed, error):
                raise
            return None
        run("trial", trial.after_backward)
        return result

    return backward

"""Autocast and compile for one trained module (a root): what its call slot calls.

``call`` runs every forward of the root in the training's thread; ``set`` is called between two steps. The first call
of each kind under a new setting is tried: if it fails, generators and buffers are put back, the call runs the way it
was, and a notice says why. It must never keep the module alive, and never hide an exception of the script's own.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import nullcontext
from typing import Any, Callable

from ...model.knobs import SCRIPT, Value
from ..groups import Refused
from ..guard import _raised_by_signal_handler as raised_by_signal_handler
from ..outcomes import why
from . import autocast as casts
from . import caught, compiling
from .casting import Outputs
from .keep import Kept
from .late_hooks import LateHooks
from .setting import RolledBack, Setting
from .tracing import is_traced
from .twice import Twice

RANDOM = "not numerically neutral: compiled dropout draws from another stream"


class RootKernels:
    """One root. Holds its module weakly; ``call`` is handed the module by the slot, ``previous`` is what the script
    itself had in that slot (its own ``module.compile()``), or None."""

    def __init__(
        self, torch: Any, module: Any, previous: Any, places: casts.Places, watch: compiling.CompileWatch, twice: Twice,
        guarded: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._torch = torch
        self.previous = previous
        self._module = weakref.ref(module)
        self._places = places
        self._watch = watch
        self._twice = twice
        self._guarded = guarded
        self._compiled: dict[Setting, Callable[[Any, Any, Any], Any]] = {}
        self._spent: dict[Setting, int] = {}
        self._tried: set[tuple[bool, bool]] = set()
        self._former = Setting()
        self.device = next((p.device.type for p in module.parameters()), "cpu")
        self.no_effect = casts.no_effect(torch, module)
        """Why autocast would change nothing, as found when the module was met, or asked for last."""
        self.caught = caught.words_of(torch, module)
        """What is to be known of its hooks before autocast is tried, as found then too."""
        self.setting = Setting()
        self.notices: deque[RolledBack] = deque()
        self.active = False
        """Whether calls have to come here; else the slot calls what the script has."""
        self.called = True
        """Set by the slot at each call."""
        self.calls = 0
        """Forwards of the training since the setting was set."""
        self.seen: str | None = None
        self.partly: str | None = None
        self.own_autocast: str | None = None
        self.on_call: Callable[[], None] | None = None
        """Called before each forward, while a change is on trial."""
        self.on_result: Callable[[Any, Any, Any, Any], None] | None = None
        """Told of each forward of the training, while another batch size is asked for."""
        self.late_hooks = LateHooks(torch)
        self.compiles = False
        """Whether torch has ever made a graph of it for us."""

    # ---- asking ----

    def plan(self, name: str, value: Value) -> str:
        """The value that ``name`` (autocast, compile) would take; raises Refused."""
        module = self._module()
        word = str(value)
        if module is None:
            raise Refused("the model is gone")
        if word == SCRIPT:
            return word
        if name == "autocast":
            self.no_effect = casts.no_effect(self._torch, module)
            self.look_for_hooks()
            casts.check(self._torch, module, self.device, word)
            return word
        compiling.check(self._torch, module, self.device, word)
        if word != compiling.OFF and (again := self.cannot_compile) is not None:
            raise Refused(again)
        tried = self._spent.get(self.setting._replace(compile=word), 0)
        if tried >= compiling.recompile_limit():
            raise Refused("recompiled %d times before, which is torch's limit: it would go on without" % tried)
        return word

    def set(self, **asked: str) -> None:
        """In force from the next call on. What was planned is not refused any more."""
        wanted = self.setting._replace(**asked)
        if wanted == self.setting:
            return
        if wanted.compile not in (SCRIPT, compiling.OFF):
            compiling.load(self._watch)
        self._former, self.setting = self.setting, wanted
        self.mind()
        self.late_hooks.asked()
        self._tried.clear()
        self.seen = self.partly = None
        self.calls = 0

    @property
    def module(self) -> Any:
        """None once it is gone."""
        return self._module()

    @property
    def alive(self) -> bool:
        return self._module() is not None

    @property
    def compiled_by_script(self) -> bool:
        """Whether what the script has for this root is compiled, in place or by a wrapper."""
        module = self._module()
        return self.previous is not None or (module is not None and compiling.wrapped_by_compile(module) is not None)

    @property
    def cannot_compile(self) -> str | None:
        """Why what the script does with this root would fail, were it compiled."""
        module = self._module()
        return None if module is None else self._twice.reason(module)

    @property
    def untouched(self) -> list[str]:
        """The knobs that are as the script has them."""
        return [name for name, word in self.setting._asdict().items() if word == SCRIPT]

    @property
    def idle(self) -> bool:
        """Nothing of ours is in force: the slot may call what the script has."""
        return self.setting == Setting()

    def look_for_hooks(self) -> None:
        """What is on its parts now."""
        module = self._module()
        self.caught = None if module is None else caught.words_of(self._torch, module)

    def mind(self, looks: bool = False) -> None:
        """Whether calls have to come here now; ``looks``: all the same."""
        self.active = looks or not self.idle or self.on_call is not None or self.on_result is not None

    def look(self) -> None:
        """At the next call, look what the script's own autocast does at this place."""
        self.mind(True)

    # ---- every call ----

    def call(self, module: Any, args: Any, kwargs: Any) -> Any:
        """The root's forward under the setting."""
        if is_traced(self._torch):  # as in evaluations, whatever the gradients
            return self._run(self.setting._replace(compile=SCRIPT), True, module, args, kwargs)
        if self.on_call is not None:
            self.on_call()
        evaluates = self._places.called()
        try:
            result = self._call(evaluates, module, args, kwargs)
        finally:
            self._places.left()
        if self.on_result is not None and not evaluates:
            self.on_result(module, args, kwargs, result)
        return result

    def _call(self, evaluates: bool, module: Any, args: Any, kwargs: Any) -> Any:
        if not evaluates:
            self.calls += 1
        if self.idle:
            self.mind(evaluates)
        if (evaluates and self.setting.compile == SCRIPT) or self.idle:  # nothing of ours, and nothing to fail
            return self._run(self.setting, evaluates, module, args, kwargs)
        kind = (self._torch.is_grad_enabled(), module.training)
        kept = None if kind in self._tried else self._kept(module, (args, kwargs))
        try:
            result = self._run(self.setting, evaluates, module, args, kwargs)
        except Exception as error:
            if _not_a_failure(error):
                raise
            inner = getattr(error, "inner_exception", None)  # what torch wraps when a backend fails
            reason = why(inner if isinstance(inner, Exception) else error)
        else:
            if kept is not None and (self.late_hooks.words is None or self.setting.compile in (SCRIPT, compiling.OFF)):
                self._tried.add(kind)
            return result
        # outside of the handler: what is raised now is the script's own, and the only one that its user should see
        return self._again(reason, kept, evaluates, module, args, kwargs)

    def _kept(self, module: Any, inputs: Any) -> Kept | None:
        """None where it could not be taken: the forward runs all the same."""
        kept: Kept | None = self._guarded("kept", Kept, self._torch, module, inputs, self._guarded)
        return kept

    def _again(self, reason: str, kept: Kept | None, evaluates: bool, module: Any, args: Any, kwargs: Any) -> Any:
        """Once more the way it was. If that fails as well, it is the script's own affair and the change stands."""
        lost = "its random numbers were drawn twice" if kept is None else kept.put_back()
        back = self._former if self._former != self.setting else Setting()
        self.late_hooks.keep(back, back._replace(autocast=SCRIPT))
        result = self._run(back, evaluates, module, args, kwargs)
        self._give_up(back, "%s (this step's forward ran twice%s)" % (reason, ": " + lost if lost else ""))
        return result

    def _give_up(self, back: Setting, reason: str) -> None:
        failed = self.setting
        self.set(autocast=back.autocast, compile=back.compile)
        self._former = Setting()
        self.notices.append(RolledBack(failed, back, reason))

    def _run(self, setting: Setting, evaluates: bool, module: Any, args: Any, kwargs: Any) -> Any:
        places = self._places
        if evaluates:  # without autocast of ours; one graph serves there, whatever the training has
            region = places.scripts(self.device)
            with nullcontext() if region is None else region:
                return self._inner(setting._replace(autocast=SCRIPT), module, args, kwargs)
        there = casts.word_of(self._torch, self.device)
        if setting.autocast == SCRIPT:
            self.own_autocast = there
            return self._inner(setting, module, args, kwargs)
        if self.own_autocast is None and not casts.inside_any(self._torch):
            self.own_autocast = casts.OFF  # it came while the knob was on already
        wanted = setting.autocast
        island = there == casts.OFF and casts.inside_any(self._torch)
        if island and casts.inside_backward(self._torch):
            island = self.seen in (None, casts.OFF)  # checkpointing computes again: as it was computed
        if there == wanted or island:
            self.seen = there
            return self._inner(setting, module, args, kwargs)
        self.seen = wanted
        with places.ours(self.device, wanted):
            result = self._inner(setting, module, args, kwargs)
        return result if wanted == casts.OFF or there != casts.OFF else self._cast_back(result, wanted)

    def _cast_back(self, result: Any, word: str) -> Any:
        torch, low = self._torch, casts.dtype_of(self._torch, word)
        outputs = Outputs(torch.Tensor, lambda tensor: tensor.dtype == low, lambda tensor: tensor.float())
        try:
            cast = outputs.changed(result)
        except Exception as error:
            if raised_by_signal_handler(error.__traceback__):
                raise
            self.partly = type(result).__name__
            return result
        self.partly = outputs.unknown
        return cast

    # ---- compile ----

    def _inner(self, setting: Setting, module: Any, args: Any, kwargs: Any) -> Any:
        if setting.compile == SCRIPT:
            previous = self.previous
            return module._call_impl(*args, **kwargs) if previous is None else previous(*args, **kwargs)
        wrapped = compiling.wrapped_by_compile(module)
        if setting.compile == compiling.OFF or self.late_hooks.differ(setting, module, self._compiled):
            return module._call_impl(*args, **kwargs) if wrapped is None else wrapped(*args, **kwargs)
        call = self._compiled.get(setting)
        if call is None:
            call = self._compiled[setting] = compiling.compiled_call(self._torch, setting.compile)
        heard: list[int] = []
        made = compiling.graphs_made()
        self._watch.heard = heard
        try:
            with compiling.backward_with_forward():
                result = call(wrapped if wrapped is not None else module, args, kwargs)
        finally:
            self._watch.heard = None
            self.compiles = self.compiles or compiling.graphs_made() > made
            if heard:
                self._watch.ours += compiling.graphs_made() - made
        if heard:
            self._recompiled(setting, max(heard))
        return self._apart(result) if self.device == "cuda" and setting.compile != "default" else result

    def _recompiled(self, setting: Setting, number: int) -> None:
        self._spent[setting] = number + 1
        if number + 1 >= compiling.recompile_limit() and setting.compile == self.setting.compile:
            reason = "recompiled %d times: torch would go on without compiling" % (number + 1)
            self._give_up(self.setting._replace(compile=SCRIPT), reason)

    @property
    def recompiles(self) -> int:
        """Of the code in force, in training and in evaluation."""
        in_force = {self.setting, self.setting._replace(autocast=SCRIPT)}
        return sum(max(0, self._spent.get(setting, 0) - 1) for setting in in_force)

    def _apart(self, result: Any) -> Any:
        """Recorded kernels write into the same memory at each call: the script gets copies that it may keep."""
        return Outputs(self._torch.Tensor, lambda _: True, lambda found: found.clone()).changed(result)


def _not_a_failure(error: Exception) -> bool:
    """A signal handler's, or how checkpointing stops a forward that has computed again all that was needed."""
    return raised_by_signal_handler(error.__traceback__) or type(error).__module__ == "torch.utils.checkpoint"

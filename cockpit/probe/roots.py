"""Finds the modules that are trained (roots) and times their forward from their own call slot.

``nn.Module.__call__`` is replaced only until the first step has ended; then each root found keeps a ``Slot`` in its
``_compiled_call_impl``. It must never change what a forward computes, never keep a module alive, and never travel
into a pickle or a deep copy. Global module hooks are not used: removing one recompiles a compiled script.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable

from . import recorder as phases
from .guard import Guard
from .recorder import Recorder
from .roles import Roles

_DYNAMO = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PATIENCE = 200
"""Outermost forwards without any backward after which the search pauses; the first backward resumes it."""


class Roots:
    """The search, and the slots that it leaves."""

    def __init__(self, torch: Any, guard: Guard, recorder: Recorder, roles: Roles, adopt: Any) -> None:
        self._adopt = adopt
        self._module_class = torch.nn.Module
        self._script_class = torch.jit.ScriptModule
        self._grad_enabled = torch.is_grad_enabled
        self._recorder = recorder
        self._roles = roles
        self._original = self._module_class.__call__
        self._found: dict[int, weakref.ref[Any]] = {}
        self._found_again: dict[int, weakref.ref[Any]] = {}
        """Called inside backward, where checkpointing computes a part of some root again, or a whole one first."""
        self._depth = 0
        self._calls = 0
        self._callbacks: list[tuple[list[Any], Callable[..., None]]] = []
        self.searching = False
        self._next_look = 0
        self._lost = False
        self._watched: list[weakref.ref[Any]] = []
        self.on_dynamo: Callable[[], Any] = lambda: None
        self.script_compiled: Callable[[], bool] = lambda: False
        """Whether anything was compiled that we did not ask for: then nothing that Dynamo has seen may change."""
        self.on_evaluation: Callable[[], None] = lambda: None
        self.on_hold: Callable[[], None] = lambda: None
        self._switch = guard.switch("forward")
        self._finder = guard.around("forward", self._original, self._entering, self._left)
        self._slot_class = slot_class(guard, recorder, self.after_forward)

    # ---- the search ----

    def search(self) -> None:
        """Puts the finder in place of ``nn.Module.__call__``, unless somebody else has replaced that meanwhile."""
        if not self.searching and self._put(self._finder, instead_of=self._original):
            self.searching = True
            self._calls = self._depth = 0

    def stop_searching(self) -> None:
        """Puts ``nn.Module.__call__`` back; what was found gets its slot."""
        if self.searching:
            self._put(self._original, instead_of=self._finder)
            for callbacks, ours in self._callbacks:
                if ours in callbacks:
                    callbacks.remove(ours)
            self._callbacks = []
        self.searching = False

    def _put(self, call: Any, instead_of: Any) -> bool:
        """Put ``call`` in place as ``nn.Module.__call__``, if what is there is ``instead_of`` and nobody else's.

        Dynamo knows the class's own ``__call__`` by what it found when it was imported, perhaps our finder. Where that
        is not what is in place, it traces the whole way through ``__call__`` instead of going straight to ``forward``:
        other guards, and our slots in the script's graphs. So it is told.
        """
        if self._module_class.__call__ is not instead_of:
            return False
        self._module_class.__call__ = call
        for name in _DYNAMO:
            known = getattr(sys.modules.get(name), "unpatched_nn_module_call", None)
            if known is self._original or known is self._finder:
                sys.modules[name].unpatched_nn_module_call = call  # type: ignore[attr-defined]
        return True

    def mind_dynamo(self) -> None:
        """From now on step aside while Dynamo compiles: a function of the script may call modules that have hooks."""
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is None:
            return
        self.on_dynamo()
        if self.searching and not self._callbacks:
            self._callbacks = [
                (handler.start_callbacks, self._compiling),
                (handler.end_callbacks, self._compiled),
            ]
            for callbacks, ours in self._callbacks:
                callbacks.append(ours)

    def _compiling(self, *_: Any) -> None:
        self._put(self._original, instead_of=self._finder)

    def _compiled(self, *_: Any) -> None:
        if self.searching and not self._depth:
            self._put(self._finder, instead_of=self._original)

    def settle(self) -> None:
        """The first step has ended: from now on the slots tell."""
        self.stop_searching()
        roots = self._outermost()
        first, self._next_look = not self._next_look, self._next_look or 2
        if not first:
            roots = [module for module in roots if not self._may_stand_in_a_graph(module)]
        if any(self._may_stand_in_a_graph(module) for module in roots):
            self._switch.off("the model has hooks of its own, and functions that call it may have been compiled")
            return
        for module in roots:
            self._occupy(module)

    def occupy(self, modules: list[Any]) -> None:
        """Those that were roots in the process before, where its loop goes on: before anything of them is called."""
        for module in modules:
            if not self._may_stand_in_a_graph(module):
                self._occupy(module)

    def look_again(self, steps: int, lost: bool = False) -> None:
        """Search through the step to come, where so many have ended: at ever longer distances, for what joins later.

        And at once where what was found is ``lost``: another fold's model, or the copy of the best one. Not where the
        script has compiled anything: nothing that Dynamo has seen may change for a look.
        """
        at_once, self._lost = lost and not self._lost, lost
        if not self.searching and (0 < self._next_look <= steps or (at_once and self._next_look)):
            self._next_look = 2 * steps
            if not self.script_compiled():
                self.search()

    def _outermost(self) -> list[Any]:
        """What was found, and of what was only called inside backward whatever is no part of something else."""
        found, again = ([ref() for ref in refs.values()] for refs in (self._found, self._found_again))
        self._found.clear()
        self._found_again.clear()
        roots = [module for module in found if module is not None and self._is_root(module)]
        for module in again:
            others = [*roots, *(other for other in again if other is not None and other is not module)]
            if module is not None and self._is_root(module) and not any(_holds(other, module) for other in others):
                roots.append(module)
        return roots

    def _may_stand_in_a_graph(self, module: Any) -> bool:
        """Whether a slot now might be a recompilation: Dynamo looks at it only on its long way through ``__call__``."""
        if not self.script_compiled() or "_orig_mod" in module._modules:
            return False  # nothing compiled yet; or itself the compiled one, which stands outside of its graphs
        attributes = module.__dict__
        hooked = any(attributes.get(name) for name in _HOOKS) or "forward" in attributes
        return hooked or type(module).__call__ is not self._original

    def _entering(self, module: Any, *_: Any) -> tuple[int, int, Any, str] | None:
        recorder = self._recorder
        if not self.searching or (recorder.thread is not None and recorder.thread != recorder.ident()):
            return None  # somebody may have kept the finder in a wrapper of their own
        self._depth += 1
        if self._depth > 1:
            return 0, 0, None, ""
        self.mind_dynamo()
        # only the outermost is looked for: what is compiled inside must not have seen the finder (guards on it fail
        # once it is gone, and a whole model would be compiled again)
        self._put(self._original, instead_of=self._finder)
        if type(module.__dict__.get("_compiled_call_impl")) is self._slot_class:
            return 0, 0, None, ""  # found before: its slot tells
        was = recorder.doing
        recorder.doing, recorder.since = phases.FORWARD, recorder.clock()
        return recorder.since, recorder.charged, module, was

    def _left(self, token: tuple[int, int, Any, str], result: Any, error: BaseException | None) -> None:
        self._depth -= 1
        began, charged, module, was = token
        if self.searching and not self._depth:
            self._put(self._finder, instead_of=self._original)
        if module is None:
            return
        self._recorder.doing = was
        self.after_forward(began, charged, self._is_root(module))
        self._calls += 1
        if self._grad_enabled():
            found = self._found_again if was == phases.BACKWARD else self._found
            found[id(module)] = weakref.ref(module)
        if self._calls >= PATIENCE and not self._recorder.backwards:
            self.stop_searching()

    def _is_root(self, module: Any) -> bool:
        return any(parameter.requires_grad for parameter in module.parameters())

    def _occupy(self, module: Any) -> None:
        if isinstance(module, self._script_class) or "_compiled_call_impl" in type(module).__dict__:
            return
        attributes = module.__dict__
        previous = attributes.get("_compiled_call_impl")
        if type(previous) is not self._slot_class:
            slot = attributes["_compiled_call_impl"] = self._slot_class(weakref.ref(module), previous)
            slot.kernels = self._adopt(module, previous)
            self._watched.append(weakref.ref(module, self._gone))

    def _gone(self, ref: Any) -> None:
        """A root has died, wherever it was dropped: the end of the next step is looked at. A store or two."""
        self._watched.remove(ref)
        self._recorder.awaited = True

    # ---- every forward of a root ----

    def after_forward(self, began: int, charged: int, trained: bool = True) -> None:
        """Charge it; without a loader in this thread it is also what begins and ends a step.

        ``trained``: not where the search has met something else (a loss, an activation of a model that is called in a
        way of its own): it is never seen again once the search is over, and steps by it would stop.
        """
        recorder = self._recorder
        now = recorder.since = recorder.clock()
        own = now - began - (recorder.charged - charged)
        if not self._grad_enabled():
            if recorder.base is not None:
                recorder.charged += own
                recorder.forward += own
            if self._roles.recent:
                self._roles.evaluated(recorder.ident())
            if recorder.trailing is not None and recorder.updates:
                self.on_evaluation()
            return
        recorder.forward_seen = recorder.forward_seen or trained
        plain = recorder.base is not None and recorder.forward_steps and not recorder.loaderless
        # in a backward it is checkpointing that computes again
        if trained and (not plain or recorder.trailing) and recorder.doing != phases.BACKWARD:
            self._perhaps_a_step(began)
        recorder.charged += own
        recorder.forward += own

    def _perhaps_a_step(self, began: int) -> None:
        """Where no loader tells, a forward with gradients after an update is where the next step begins."""
        recorder = self._recorder
        recorder.forward_steps = True
        if recorder.base is None:
            recorder.last_forward = recorder.mark(began)
            if recorder.loaderless:
                recorder.begin(recorder.last_forward)
        elif recorder.updates and (recorder.loaderless or recorder.next_of_trailing()):
            recorder.has_forward = True
            recorder.end_step(began)
            recorder.has_forward = False
            if recorder.hold:
                self.on_hold()


def _holds(whole: Any, part: Any) -> bool:
    return any(module is part for module in whole.modules())


def slot_class(guard: Guard, recorder: Recorder, after_forward: Any) -> Any:
    """The class of the callables that sit in a root's ``_compiled_call_impl``."""
    is_compiling = recorder.is_compiling

    def run(slot: Any, *args: Any, **kwargs: Any) -> Any:
        # a shallow copy of the module carries the slot along: what is called is the caller's own self
        module = slot.module()
        if not is_compiling():  # Dynamo may get here for a module with hooks, and must find nothing it cannot trace
            caller = sys._getframe(2).f_locals.get("self")
            if caller is not module and type(caller) is type(module):
                module = caller
            kernels = slot.kernels
            if kernels is not None:
                kernels.called = True
                if kernels.active:
                    return kernels.call(module, args, kwargs)
        previous = slot.previous
        return module._call_impl(*args, **kwargs) if previous is None else previous(*args, **kwargs)

    timed = guard.timed("forward", run, phases.FORWARD, recorder, after_forward, frames=2)

    class Slot:
        """Holds its module weakly; pickles and deep-copies as None, so that no copy ever calls another's weights."""

        __slots__ = ("kernels", "module", "previous")

        def __init__(self, module: Any, previous: Any) -> None:
            self.module = module
            self.previous = previous
            self.kernels: Any = None

        def __reduce__(self) -> tuple[Any, tuple[()]]:
            return type(None), ()

        __call__ = timed

    return Slot

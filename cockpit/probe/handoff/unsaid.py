"""What a training has changed in the middle and no ``state_dict`` says: gradients that wait for their optimizer, which
parameters are frozen, which modules evaluate, what torch itself was told.

Called by ``live``: ``note`` where a loop begins, ``taken`` for a hand-off, ``put`` where the loop of the next process
begins. Only what has changed since ``note`` is carried: the rest is the script's, which may have been edited. It copies
no tensor, draws nothing, and sets nothing that was not set before.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..guard import attempt
from ..recorder import Recorder
from .folder import Refused
from .torch_settings import settings_of

PLAIN = (bool, int, float, str)
TORCHS = ("torch.nn.", "torchvision.ops.")
"""Modules whose plain attributes mean nothing but what they say: others may go with something that is not here."""
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
TOLD = 3


class Facts(NamedTuple):
    """By the name that is the same in each process. ``frozen``: whether a parameter is; ``attributes``: those of each
    module that are plain values, and how many hooks it has; ``settings``: torch's own."""

    frozen: dict[str, bool]
    attributes: dict[str, Any]
    settings: dict[str, Any]


class Unsaid:
    """Of one process. ``kernels``: the probe's, whose settings of torch are not the script's."""

    def __init__(self, torch: Any, recorder: Recorder, kernels: Any) -> None:
        self._torch, self._recorder, self._kernels = torch, recorder, kernels
        self._before: Facts | None = None
        self._former: dict[int, Any] = {}
        """By parameter, the gradient that it had when the epoch began; not kept alive."""

    def note(self, things: dict[str, Any]) -> None:
        """The script's loop begins, and everything is as its first lines have made it."""
        self._before = self._facts(things)

    def taken(self, things: dict[str, Any]) -> dict[str, Any]:
        """What goes into a hand-off, plain values and tensors. Raises Refused where a gradient cannot."""
        before, now = self._before, self._facts(things)
        if before is None:
            raise Refused("what no state_dict says could not be read")
        ours = {name for name, setter in self._kernels.setters.items() if setter.script is not None}
        settings = {name: value for name, value in _changed(before.settings, now.settings) if name not in ours}
        roots = {id(module) for module in self._kernels.modules()}
        return {
            "gradients": self._gradients(things),
            "present": [name for name, each in self._parameters(things) if self._is_there(each.grad)],
            "frozen": dict(_changed(before.frozen, now.frozen)),
            "attributes": dict(_changed(before.attributes, now.attributes)),
            "settings": settings,
            "roots": [path for path, module in self._modules(things) if id(module) in roots],
        }

    def epoch_begins(self, things: dict[str, Any]) -> None:
        """Which gradients there are: one that is the same at the end of it was never set to None."""
        self._former = {}
        grads = ((id(each), each.grad) for _, each in self._parameters(things))
        self._former = {name: weakref.ref(grad) for name, grad in grads if grad is not None}

    def put(self, things: dict[str, Any], state: dict[str, Any]) -> list[str]:
        """All of it again; what is not done again, as sentences without their end. Raises where a gradient is not put:
        then this is another training."""
        parameters = dict(self._parameters(things))
        for name, flag in state.get("frozen", {}).items():
            if name in parameters and parameters[name].requires_grad == flag:
                parameters[name].requires_grad_(not flag)
        told = self._put_attributes(things, state.get("attributes", {}))
        settings = settings_of(self._torch)
        for name, value in state.get("settings", {}).items():
            setting = settings.get(name)
            if setting is not None and attempt(setting.read)[0] != value:
                _, error = attempt(setting.write, value)
                if error is not None:
                    told.append("torch's %s was set to %s, and cannot be here: %s" % (name, value, error))
        for name, gradient in state.get("gradients", {}).items():
            _wait_again(self._torch, name, parameters.get(name), gradient)
        for name in state.get("present", ()):
            if name in parameters and parameters[name].grad is None:
                parameters[name].grad = self._torch.zeros_like(parameters[name])
        return told

    def roots(self, things: dict[str, Any], state: dict[str, Any]) -> list[Any]:
        """The modules whose forward the process before had in hand, as far as they are among ``things``."""
        modules = dict(self._modules(things))
        return [modules[path] for path in state.get("roots", ()) if path in modules]

    def _put_attributes(self, things: dict[str, Any], attributes: dict[str, Any]) -> list[str]:
        modules = dict(self._modules(things))
        lost = []
        for name, value in attributes.items():
            path, _, attribute = name.rpartition(" ")
            module = modules.get(path)
            if module is None or _attributes(module).get(attribute) == value:
                continue
            carried = attribute == "training" or type(module).__module__.startswith(TORCHS)
            if attribute not in HOOKS and carried and attempt(setattr, module, attribute, value)[1] is None:
                continue
            lost.append("%s.%s" % (path, attribute.strip("_")))
        if not lost:
            return []
        more = " and %d more" % (len(lost) - TOLD) if len(lost) > TOLD else ""
        return [
            "what the script changed while it trained, and is in no state_dict, begins anew: %s%s"
            % (", ".join(lost[:TOLD]), more)
        ]

    # ---- what there is ----

    def _facts(self, things: dict[str, Any]) -> Facts:
        attributes = {
            "%s %s" % (path, name): value
            for path, module in self._modules(things)
            for name, value in _attributes(module).items()
        }
        settings = {}
        for name, setting in settings_of(self._torch).items():
            value, error = attempt(setting.read)
            if error is None:
                settings[name] = value
        return Facts({name: not each.requires_grad for name, each in self._parameters(things)}, attributes, settings)

    def _gradients(self, things: dict[str, Any]) -> dict[str, Any]:
        """Those that an uninterrupted training might still use: of all parameters but those whose optimizer has stepped
        since the newest backward, and that the script is seen to make anew. Of shared ones, once."""
        stepped, found = self._stepped(), {}
        settled = set[int]()
        for name, parameter in self._parameters(things):
            gradient = parameter.grad
            made_anew = id(parameter) in stepped and self._is_made_anew(parameter)
            if gradient is None or made_anew or id(parameter) in settled:
                continue
            settled.add(id(parameter))
            if gradient.requires_grad and id(parameter) in stepped:
                continue  # no optimizer adds up graphs for good
            if gradient.requires_grad:
                raise Refused(
                    "the gradient of %s waits for its optimizer and is part of a graph (create_graph=True), which no"
                    " other process could go on with" % name
                )
            found[name] = gradient
        return found

    def _is_there(self, gradient: Any) -> bool:
        """Who zeroes in place goes on updating what the model uses no more: an optimizer passes over None, not over
        zeros. Who sets to None does so before the next backward, and never sees them."""
        return gradient is not None and gradient.layout == self._torch.strided

    def _is_made_anew(self, parameter: Any) -> bool:
        """Who never zeroes adds up for ever, and who zeroes in place cannot be told from them; where nobody knows yet,
        the first epoch, it may be either."""
        former = self._former.get(id(parameter))
        return former is not None and former() is not parameter.grad

    def _stepped(self) -> set[int]:
        recorder, found = self._recorder, set[int]()
        if recorder.backwards:  # else the script makes its gradients in another way, and nobody knows when
            for optimizer in recorder.living_optimizers():
                if recorder.stepped.get(id(optimizer)) == recorder.backwards:
                    found.update(id(each) for group in optimizer.param_groups for each in group["params"])
        return found

    def _parameters(self, things: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Of modules by name, of optimizers by place; shared ones under each of their names."""
        for path, module in self._modules(things):
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    yield "%s.%s" % (path, name), parameter
        for path, thing in self._parts(things):
            if isinstance(thing, self._torch.optim.Optimizer):
                for at, group in enumerate(thing.param_groups):
                    for number, parameter in enumerate(group["params"]):
                        yield "%s[%d][%d]" % (path, at, number), parameter

    def _modules(self, things: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for path, thing in self._parts(things):
            if isinstance(thing, self._torch.nn.Module):
                for name, module in thing.named_modules():
                    yield "%s.%s" % (path, name) if name else path, module

    def _parts(self, things: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The things themselves, and what an object of the script's own holds: a trainer that gives one state."""
        kinds = self._torch.nn.Module, self._torch.optim.Optimizer
        for name, thing in things.items():
            yield name, thing
            if not isinstance(thing, kinds):
                for key, part in list(getattr(thing, "__dict__", {}).items()):
                    if isinstance(part, kinds):
                        yield "%s.%s" % (name, key), part


def _attributes(module: Any) -> dict[str, Any]:
    fields = vars(module)
    found = {name: value for name, value in fields.items() if type(value) in PLAIN and name[:1] != "_"}
    return {**found, "training": bool(module.training), **{name: len(fields.get(name) or ()) for name in HOOKS}}


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in now.items() if name in before and before[name] != value]


def _wait_again(torch: Any, name: str, parameter: Any, gradient: Any) -> None:
    """Where the script has made room for it already (one flat buffer for all), there."""
    if parameter is None:
        raise ValueError("a gradient of %s waits, and there is no such parameter" % name)
    if parameter.shape != gradient.shape:
        raise ValueError(
            "a gradient of %s waits, of shape %s instead of %s" % (name, (*gradient.shape,), (*parameter.shape,))
        )
    if parameter.grad is not None and parameter.grad.layout == gradient.layout:
        with torch.no_grad():
            parameter.grad.copy_(gradient)
    else:
        parameter.grad = gradient.to(parameter.device)

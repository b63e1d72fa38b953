"""What a process has set for all of itself, for workers that start anew: they import the script, and know none of it.

A default dtype, limits of PIL or ``csv``, a timeout of sockets: a dataset makes other samples by them, or fails. Where
the script has no workers its samples are made under the training's own, so workers of ours get those before anything
of the dataset is made there. Forked ones have them, and the script's own workers have not.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from typing import Any, Callable, NamedTuple


class Setting(NamedTuple):
    """``read`` and ``write`` are given the module; what a process begins with needs no carrying."""

    module: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]
    at_first: Any = None


def _attribute(module: str, name: str, at_first: Any) -> Setting:
    return Setting(module, lambda it: getattr(it, name), lambda it, value: setattr(it, name, value), at_first)


def _device(torch: Any) -> str:
    found = torch.get_default_device()
    return str(found.type if found.index is None else found)


SETTINGS = (
    Setting("torch", lambda it: str(it.get_default_dtype())[6:],
            lambda it, name: it.set_default_dtype(getattr(it, name)), "float32"),
    Setting("torch", _device, lambda it, name: it.set_default_device(name), "cpu"),
    Setting("torch",
            lambda it: (it.are_deterministic_algorithms_enabled(), it.is_deterministic_algorithms_warn_only_enabled()),
            lambda it, value: it._C._set_deterministic_algorithms(value[0], warn_only=value[1]), (False, False)),
    Setting("torch", lambda it: it.get_float32_matmul_precision(),
            lambda it, value: it.set_float32_matmul_precision(value), "highest"),
    Setting("torch", lambda it: it.is_grad_enabled(), lambda it, value: it.set_grad_enabled(value), True),
    Setting("torch.multiprocessing", lambda it: it.get_sharing_strategy(),
            lambda it, value: it.set_sharing_strategy(value), "file_descriptor"),
    _attribute("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES", False),
    _attribute("PIL.Image", "MAX_IMAGE_PIXELS", 1024**3 // 12),
    _attribute("torchvision", "_image_backend", "PIL"),
    Setting("numpy", lambda it: it.geterr(), lambda it, value: it.seterr(**value),
            {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}),
    Setting("socket", lambda it: it.getdefaulttimeout(), lambda it, value: it.setdefaulttimeout(value)),
    Setting("decimal", lambda it: (it.getcontext().prec, it.getcontext().rounding),
            lambda it, value: it.setcontext(it.Context(prec=value[0], rounding=value[1])), (28, "ROUND_HALF_EVEN")),
    Setting("csv", lambda it: it.field_size_limit(), lambda it, value: it.field_size_limit(value), 131072),
    Setting("sys", lambda it: it.getrecursionlimit(), lambda it, value: it.setrecursionlimit(value), 1000),
)  # fmt: skip
"""None of them makes the training import anything, nor changes anything there."""


def forks(loader: Any) -> bool:
    """Whether new workers are forked: then they are given everything as it is."""
    context = getattr(loader, "multiprocessing_context", None)
    # asked so that nothing is decided: without allow_none, asking settles the method for good
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method(allow_none=True)
    return (method or multiprocessing.get_all_start_methods()[0]) == "fork"


def differing() -> list[tuple[int, Any]]:
    """Which settings of this process are not what one begins with, by their place in the table."""
    found = []
    for at, setting in enumerate(SETTINGS):
        module = sys.modules.get(setting.module)
        if module is not None:
            try:
                value = setting.read(module)
            except (AttributeError, TypeError, ValueError):  # another version of it, which has no such thing
                continue
            if value != setting.at_first:
                found.append((at, value))
    return found


def begun(values: list[tuple[int, Any]], work: Any) -> Any:
    """In the worker, before it is given the dataset: ``work``, once everything is set."""
    for at, value in values:
        setting = SETTINGS[at]
        setting.write(importlib.import_module(setting.module), value)
    return work


class Begin:
    """The ``target`` of a process: when it is unpickled there, it becomes what was meant to run."""

    def __init__(self, values: list[tuple[int, Any]], work: Any) -> None:
        self._values, self._work = values, work

    def __reduce__(self) -> tuple[Any, ...]:
        return begun, (self._values, self._work)


class Context:
    """multiprocessing's own, but that its processes begin with what is set here."""

    def __init__(self, context: Any, values: list[tuple[int, Any]]) -> None:
        self._context, self._values = context, values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, target: Any, args: Any) -> Any:  # noqa: N802
        process = self._context.Process(target=Begin(self._values, target), args=args)
        own = dict(vars(process))
        vars(process).clear()
        # unpickled in this order, and with torch comes the package that we stand in
        vars(process).update({"_first": target, **own})
        return process


def given(torch: Any, view: Any) -> Any:
    """The context for workers that are started for ``view`` of a loader, and not forked."""
    values = differing()
    context = view.multiprocessing_context
    if values and not forks(view):
        return Context(torch.multiprocessing if context is None else context, values)
    return context

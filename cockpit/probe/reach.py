"""All that a thing refers to, nearest first, each with the name that the script could type for it.

Used by ``held`` on datasets. It must run no code of the script: attributes are taken from where they lie, without
properties or ``__getattr__``, and for the rest the interpreter is asked, as its garbage collector asks. Bounded: a
dataset may refer to everything there is.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from threading import Thread
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

PLAIN = frozenset([str, bytes, bytearray, int, float, bool, complex, type(None), type(...), range, slice, CodeType])
"""What refers to nothing."""
STANDARD = "_io _thread _weakref abc collections functools itertools io logging os pathlib random re threading types"
NOT_SCRIPTS = frozenset(
    (
        "torch",
        "numpy",
        "builtins",
        "cockpit",
        "_training_cockpit",
        *getattr(sys, "stdlib_module_names", STANDARD.split()),
    )
)
"""Whose classes are not looked into: what they hold, their instances show."""
GLOBAL = "global "
"""How names begin that are not the thing's own, but of a function or class that it refers to."""

MRO, MODULE, NAME = (type.__dict__[name].__get__ for name in ("__mro__", "__module__", "__name__"))
"""Of a class, whatever its metaclass says."""


class Limits(NamedTuple):
    """How much is looked at: things in all, items of one container, and things of one type among those."""

    things: int
    items: int
    alike: int


class Reached:
    """Iterated once: ``root`` and what it refers to, with its name and the script's class of whose instance it is.

    ``cut_short``: there was more than ``limits`` allow.
    """

    def __init__(self, root: Any, limits: Limits) -> None:
        self.cut_short = False
        self._limits = limits
        self._seen = {id(root)}
        self._line: deque[tuple[Any, str, type]] = deque([(root, "", type(root))])

    def __iter__(self) -> Iterator[tuple[Any, str, type]]:
        for _ in range(self._limits.things):
            if not self._line:
                return
            thing, path, owner = self._line.popleft()
            yield thing, path, owner
            kind = type(thing)
            owner = owner if package_of(kind) in NOT_SCRIPTS else kind
            for more, form, name in _within(thing, path, self._limits):
                if type(more) not in PLAIN and id(more) not in self._seen:
                    self._seen.add(id(more))
                    self._line.append((more, form % (path, name) if form else name, owner))
        self.cut_short = bool(self._line)


def own_attributes(thing: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of ``thing`` where that is the ordinary one."""
    for owner in MRO(type(thing)):
        found = vars(owner).get("__dict__")
        if found is not None:
            own = found.__get__(thing) if type(found) is GetSetDescriptorType else None
            return own if type(own) is dict else None
    return None


def package_of(kind: type) -> str:
    """The first part of the name of the module that ``kind`` was made in."""
    try:
        name = MODULE(kind)
    except AttributeError:  # a class made by hand may have none
        return ""
    return name.split(".")[0] if type(name) is str else ""


def names_in(code: CodeType | None) -> Iterator[str]:
    """Names that ``code`` mentions, functions nested in it included."""
    if code is None:
        return
    yield from code.co_names
    constants: tuple[Any, ...] = code.co_consts
    for constant in constants:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def methods_of(kind: type) -> Iterator[FunctionType]:
    """Functions of the script in ``kind`` and what it inherits from."""
    for value, _ in _of_class(kind):
        if type(value) is FunctionType:
            yield value


def _within(thing: Any, path: str, limits: Limits) -> Iterator[tuple[Any, str, Any]]:
    """What ``thing`` refers to, and its name: how the form is filled, or where there is none the name itself."""
    kind = type(thing)
    if issubclass(kind, (ModuleType, Thread)) or package_of(kind) == "logging":
        return  # everything; what only the thread uses; where logs go, which nobody reads
    if kind is FunctionType:
        yield from ((more, "", name) for more, name in _of_function(thing))
        return
    if issubclass(kind, type):
        yield from ((more, "", name) for more, name in _of_class(thing))
        return
    for more, name in _of_instance(thing):
        yield more, "%s.%s" if path else "%s%s", name
    if package_of(kind) not in NOT_SCRIPTS:
        yield kind, "", path
    if issubclass(kind, dict):
        if "__builtins__" not in dict.keys(thing):  # a module's, by way of a frame
            for key, value in _some(list(dict.items(thing)), limits):
                yield value, "%s[%s]", repr(key) if type(key) in (str, int) else "…"
    elif issubclass(kind, (list, tuple)):
        items = list.__iter__(thing) if issubclass(kind, list) else tuple.__iter__(thing)
        for at, item in _some(enumerate(items), limits):
            yield item, "%s[%d]", at
    else:  # cells, partials, caches, what a C type keeps: whatever has no name of its own
        for _, more in _some(enumerate(gc.get_referents(thing)), limits):
            if not issubclass(type(more), type):
                yield more, "", path


def _some(pairs: Iterable[tuple[Any, Any]], limits: Limits) -> Iterator[tuple[Any, Any]]:
    """Some of each type there is: a list of a million samples must not hide what stands behind them."""
    met: dict[type, int] = {}
    for name, thing in islice(pairs, limits.items):
        kind = type(thing)
        if kind not in PLAIN:
            met[kind] = count = met.get(kind, 0) + 1
            if count <= limits.alike:
                yield name, thing


def _of_instance(thing: Any) -> Iterator[tuple[Any, str]]:
    for name, value in list((own_attributes(thing) or {}).items()):
        yield value, str(name)
    if package_of(type(thing)) in NOT_SCRIPTS:
        return
    for owner in MRO(type(thing)):
        for name, member in list(vars(owner).items()):
            if type(member) is MemberDescriptorType:
                try:
                    yield member.__get__(thing), name
                except AttributeError:  # nothing was put there yet
                    continue


def _of_function(function: FunctionType) -> Iterator[tuple[Any, str]]:
    code = function.__code__
    if (function.__module__ or "").split(".")[0] in NOT_SCRIPTS:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        yield cell, name
    for more in (function.__defaults__, function.__kwdefaults__, function.__dict__):
        yield more, GLOBAL + function.__name__
    names = set(names_in(code))
    for name in names:
        value = function.__globals__.get(name)
        if type(value) is not ModuleType:
            yield value, GLOBAL + name
        elif value.__name__.split(".")[0] not in NOT_SCRIPTS:  # of other modules what they hold, not what they do
            for each in names:
                held = vars(value).get(each)
                if not issubclass(type(held), (type, FunctionType)):
                    yield held, "%s%s.%s" % (GLOBAL, name, each)


def _of_class(kind: type) -> Iterator[tuple[Any, str]]:
    for owner in MRO(kind):
        if package_of(owner) in NOT_SCRIPTS:
            continue
        for name, value in list(vars(owner).items()):
            if type(value) in (staticmethod, classmethod):
                value = value.__func__
            yield (value.fget if type(value) is property else value), "%s.%s" % (NAME(owner), name)

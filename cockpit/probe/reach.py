"""All that a thing refers to, nearest first, each with the name that the script could type for it.

Used by ``held`` and others on datasets. It must run no code of the script: attributes are taken from where they lie,
without properties or ``__getattr__``, and for the rest the interpreter is asked, as its garbage collector asks.
Bounded in what it looks at and in what it copies: a dataset may refer to everything there is. It does not follow what
runs the training (trainers, loaders, optimizers), nor functions and classes of packages: only what instances hold.
"""

from __future__ import annotations

import functools
import gc
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from threading import Thread
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from .whose import (
    MRO,
    NAME,
    NOT_SCRIPTS,
    feeds_training,
    is_scripts,
    module_of,
    module_of_function,
    package_of,
    runs_training,
)

PLAIN = frozenset(
    id(kind)
    for kind in (str, bytes, bytearray, int, float, bool, complex, type(None), type(...), range, slice, CodeType)
)
"""What refers to nothing, by identity: a metaclass may make a class that is not equal to itself."""
GLOBAL = "global "
"""How names begin that are not the thing's own, but of a function or class that it refers to."""
MAKING = frozenset([
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__del__", "__setattr__", "__repr__", "__str__",
    "__enter__",
])  # fmt: skip
"""Special methods that nobody calls to read a sample."""
APART = ("logging", "asyncio")
"""Where logs go, which nobody reads; what only the thread of a loop of events uses."""
MEMBERS = 10_000
"""So many attributes of one thing are looked at."""


class Limits(NamedTuple):
    """How much is looked at: things followed, items of one container, things of one type among those; items in all."""

    things: int
    items: int
    alike: int
    total: int


GLANCE = Limits(48, 32, 4, 400)
"""What an epoch or a row on the screen may cost."""


class Reached:
    """Iterated once: ``root`` and what it refers to, with its name and the script's class of whose instance it is."""

    def __init__(self, root: Any, limits: Limits) -> None:
        self._limits, self._left = limits, limits.total
        self._seen = {id(root)}
        self._root = root
        self._line: deque[tuple[Any, str, type]] = deque([(root, "", type(root))])
        self._mentioned: set[str] = set()
        self._trainings: dict[int, bool] = {}

    def __iter__(self) -> Iterator[tuple[Any, str, type]]:
        for _ in range(self._limits.things):
            if not self._line:
                return
            thing, path, owner = self._line.popleft()
            yield thing, path, owner
            kind = type(thing)
            owner = owner if package_of(kind) in NOT_SCRIPTS else kind
            for more, form, name in self._within(thing, kind, path):
                self._left -= 1
                if id(type(more)) not in PLAIN and id(more) not in self._seen:
                    self._seen.add(id(more))
                    self._line.append((more, form % (path, name) if form else name, owner))
                if self._left <= 0:
                    break

    def _within(self, thing: Any, kind: type, path: str) -> Iterator[tuple[Any, str, Any]]:
        """What ``thing`` refers to, and its name: how the form is filled, or where there is none the name itself."""
        if issubclass(kind, (ModuleType, Thread)) or package_of(kind) in APART or self._runs_training(thing, kind):
            return  # everything; what only the thread uses
        if kind is FunctionType:
            yield from ((more, "", name) for more, name in self._of_function(thing))
        elif issubclass(kind, type):
            yield from ((more, "", name) for more, name in self._of_class(thing, path))
        elif kind is MethodType and type(thing.__func__) is FunctionType:
            yield thing.__func__, "", path
            called = reading(type(thing.__self__), thing)
            names = _names(thing.__func__).union(*map(_names, called))
            yield from ((each, "", path) for each in called)
            for more, name in _of_instance(thing.__self__):
                if name in names:  # a trainer's collate does not use all that the trainer holds
                    yield more, "%s.%s" if path else "%s%s", name
        else:
            for more, name in _of_instance(thing):
                yield more, "%s.%s" if path else "%s%s", name
            if is_scripts(module_of(kind)):
                yield kind, "", path
            yield from self._items(thing, kind, path)

    def _items(self, thing: Any, kind: type, path: str) -> Iterator[tuple[Any, str, Any]]:
        if issubclass(kind, dict):
            if "__builtins__" not in dict.keys(thing):  # a module's, by way of a frame
                for key, value in self._some(dict.items(thing)):
                    yield value, "%s[%s]", _written(key)
        elif issubclass(kind, (list, tuple)):
            items = list.__iter__(thing) if issubclass(kind, list) else tuple.__iter__(thing)
            for at, item in self._some(enumerate(items)):
                yield item, "%s[%d]", at
        else:
            for _, more in self._some(enumerate(_referents(thing, kind))):
                if not issubclass(type(more), type):
                    yield more, "", path

    def _some(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Some of each type there is: a list of a million samples must not hide what stands behind them."""
        met: dict[int, int] = {}
        # copied at once, so that no other thread changes it meanwhile, and not more than is looked at
        copied = list(islice(pairs, max(0, min(self._limits.items, self._left))))
        self._left -= len(copied)
        for name, thing in copied:
            kind = id(type(thing))
            if kind not in PLAIN:
                met[kind] = count = met.get(kind, 0) + 1
                if count <= self._limits.alike:
                    yield name, thing

    def _runs_training(self, thing: Any, kind: type) -> bool:
        """What a framework has, and a trainer of the script's own: it holds the loader or an optimizer."""
        known = self._trainings.get(id(kind))
        if known is None:
            known = self._trainings[id(kind)] = thing is not self._root and runs_training(kind)
        if known or thing is self._root or not is_scripts(module_of(kind)) or _is_dataset(kind):
            return known
        first = list(islice((own_attributes(thing) or {}).values(), 64))
        return any(feeds_training(type(value)) for value in first)

    def _of_function(self, function: FunctionType) -> Iterator[tuple[Any, str]]:
        code = function.__code__
        module = module_of_function(function)
        if module.split(".")[0] in NOT_SCRIPTS:
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            yield cell, name
        if not is_scripts(module):
            return
        for more in (function.__defaults__, function.__kwdefaults__, function.__dict__):
            yield more, GLOBAL + function.__name__
        names = set(names_in(code))
        self._mentioned |= names
        for name in sorted(names):
            value = dict.get(function.__globals__, name)
            if type(value) is not ModuleType:
                yield value, GLOBAL + name
            elif is_scripts(str(vars(value).get("__name__"))):  # of other modules what they hold, not what they do
                for each in names:
                    held = vars(value).get(each)
                    if not issubclass(type(held), (type, FunctionType)):
                        yield held, "%s%s.%s" % (GLOBAL, name, each)

    def _of_class(self, kind: type, path: str) -> Iterator[tuple[Any, str]]:
        """What the class holds, and those of its methods that reading a sample may call."""
        prefix = GLOBAL if path.startswith(GLOBAL) else ""
        read = reading(kind, None, self._mentioned)
        called = {id(each) for each in read}
        self._mentioned.update(*map(_names, read))
        for value, name in members_of(kind):
            if type(value) is not FunctionType or id(value) in called:
                yield value, prefix + name


def reading(kind: type, method: Any = None, mentioned: Collection[str] = ()) -> list[FunctionType]:
    """Methods of the script in ``kind`` that reading it may call: special ones, ``mentioned`` ones, and what those
    mention in their turn; or where there is a ``method``, only what that one mentions."""
    names = set(mentioned) if method is None else set(names_in(method.__func__.__code__))
    left = list(methods_of(kind))
    found: list[FunctionType] = []
    while True:
        called = [each for each in left if each.__name__ in names or (method is None and _is_asked(each.__name__))]
        if not called:
            return found
        left = [each for each in left if each not in called]
        found.extend(called)
        names.update(*map(_names, called))


def _is_asked(name: str) -> bool:
    return name == "forward" or (name.startswith("__") and name.endswith("__") and name not in MAKING)


def own_attributes(thing: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of ``thing`` where that is the ordinary one."""
    for owner in MRO(type(thing)):
        found = vars(owner).get("__dict__")
        if found is not None:
            own = found.__get__(thing) if type(found) is GetSetDescriptorType else None
            return own if type(own) is dict else None
    return None


def attributes_of(thing: Any) -> list[tuple[str, Any]]:
    """Some of them, copied."""
    return list(islice((own_attributes(thing) or {}).items(), MEMBERS))


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
    """Functions of the script, or of a package, in ``kind`` and what it inherits from."""
    for value, _ in members_of(kind):
        if type(value) is FunctionType:
            yield value


def members_of(kind: type) -> Iterator[tuple[Any, str]]:
    """What stands in the class and in those it inherits from, functions as such; but for torch's and Python's."""
    for owner in MRO(kind):
        if package_of(owner) in NOT_SCRIPTS:
            continue
        for name, value in list(islice(vars(owner).items(), MEMBERS)):
            if type(value) in (staticmethod, classmethod):
                value = value.__func__
            elif type(value) is property:
                if value.fset is not None:
                    yield value.fset, "%s.%s" % (NAME(owner), name)
                value = value.fget
            elif type(value) is functools.cached_property:
                value = value.func
            yield value, "%s.%s" % (NAME(owner), name)


def _of_instance(thing: Any) -> Iterator[tuple[Any, str]]:
    for name, value in attributes_of(thing):
        yield value, str(name)
    if package_of(type(thing)) in NOT_SCRIPTS:
        return
    for owner in MRO(type(thing)):
        for name, member in list(islice(vars(owner).items(), MEMBERS)):
            if type(member) is MemberDescriptorType:
                try:
                    yield member.__get__(thing), name
                except AttributeError:  # nothing was put there yet
                    continue


def _referents(thing: Any, kind: type) -> Iterable[Any]:
    """Of cells, partials, caches, what a C type keeps: whatever has no name of its own."""
    for many in (set, frozenset, deque):
        if issubclass(kind, many):
            return many.__iter__(thing)
    return gc.get_referents(thing)


def _is_dataset(kind: type) -> bool:
    return any(module_of(owner) == "torch.utils.data.dataset" for owner in MRO(kind))


def _names(function: FunctionType) -> set[str]:
    return set(names_in(function.__code__))


def _written(key: Any) -> str:
    """A key as one could type it, where it is short."""
    if type(key) is str:
        return repr(key) if len(key) <= 20 else repr(key[:20]) + "…"
    return repr(key) if type(key) is int and abs(key) < 10**18 else "…"

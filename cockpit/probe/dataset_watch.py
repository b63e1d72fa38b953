"""Whether the script changes its dataset, between epochs or while it trains: workers have it as it was at their start.

Kept by a loader's control. It looks at attributes where they lie, and runs no code of the script. What a dataset does
to itself as it is read (a cache, a file opened late) is its own affair; what the loop does to it workers would miss.
"""

from __future__ import annotations

import dis
import functools
from types import CodeType, FunctionType
from typing import Any, Callable, NamedTuple

from .imported_anew import set_since_import
from .reach import GLANCE, GLOBAL, MAKING, Reached, attributes_of, methods_of, names_in, reading
from .sparing import Sparing
from .taken import Fetches
from .whose import MRO, NOT_SCRIPTS, is_scripts, module_of, package_of

SHARE = 500
"""Looks that nobody has to have take this part of the time at most: an epoch may be one step."""
COMPARED = frozenset(map(id, (bool, int, float, str, bytes, type(None))))
"""Types compared by value; all else by identity."""
BY_NAME = frozenset(["setattr", "__setattr__", "__dict__", "vars", "exec"])
"""Who uses these may set anything on anything."""
FUNCTIONS = 500
"""So many are read to tell who changes what."""
MEMBERS = 200
"""So many attributes of one part are compared."""
WHOLE = "every worker served the whole stream: %d samples in an epoch instead of %d"


class Thing(NamedTuple):
    """One part of a dataset as it was: which it is, and its attributes."""

    is_id: int
    kind: type
    values: dict[str, Any]


class DatasetWatch:
    """``changed`` since the look before; ``changing``: the first attribute that ever was, at an epoch's start.

    ``stale``: the first of those that the dataset does not change itself as it is read. ``restless``: the first that
    the loop was seen to change in the middle of an epoch. ``whole``: how a stream was seen to be served whole by each
    of its workers.
    """

    def __init__(self, module: type, clock: Callable[[], int]) -> None:
        self._module, self._clock = module, clock
        self._seen: dict[str, Thing] | None = None
        self._here: dict[str, Thing] | None = None
        self._spares, self._spares_reading = Sparing(SHARE), Sparing(SHARE)
        self._anew: str | None = None
        self.changed = False
        self.changing: str | None = None
        self.stale: str | None = None
        self.restless: str | None = None
        self.whole: str | None = None
        self._served: tuple[int, int] | None = None

    def served(self, workers: int, samples: int) -> None:
        """A whole epoch of a stream: as many samples more as there are workers more are the same ones again."""
        now = (max(1, workers), samples)
        if self._served is not None and self.whole is None:
            (many, before), more = self._served, now[0] - self._served[0]
            if more > 0 and before and samples * many == before * now[0]:
                self.whole = WHOLE % (samples, before)
                return
        self._served = now

    def look_at(self, dataset: Any, needed: bool = True) -> None:
        """At the start of an epoch; not ``needed``: only where there is time for it."""
        began_ns = self._clock()
        if not needed and not self._spares.is_due(began_ns):
            self._here = None
            return
        now, functions = self._things(dataset)
        seen, self._seen, self._here = self._seen, now, now
        different = _different(seen or {}, now)
        # for workers that are kept: a part that is another one now is other data, too
        self.changed = bool(different) or (seen is not None and _parts(seen) != _parts(now))
        if different and (self.changing is None or self.stale is None):
            self.changing = self.changing or _full(*different[0])
            self.stale = self.stale or _loops(different, now, functions)
        self._spares.took(began_ns, self._clock())

    def look_within(self, dataset: Any) -> None:
        """In the middle of that epoch, or at its very end."""
        began_ns = self._clock()
        if self.restless is not None or self._here is None:
            return
        now, functions = self._things(dataset)
        different = _different(self._here, now)
        if different:
            self.restless = _loops(different, now, functions)
        self._spares.took(began_ns, self._clock())

    def look_at_fetches(self, mechanism: Any, iterator: Any) -> None:
        """The first ones of an epoch, where there was time for a look at its start."""
        if self._here is not None and self.restless is None:
            Fetches(mechanism.torch, iterator, mechanism.run, self._taken).put()

    def _taken(self, path: str) -> None:
        self.restless = self.restless or path

    def set_since_import(self, loader: Any) -> str | None:
        """As ``imported_anew`` has it; where there is time for it."""
        began_ns = self._clock()
        if self._spares_reading.is_due(began_ns):
            self._anew = set_since_import(loader)
            self._spares_reading.took(began_ns, self._clock())
        return self._anew

    def _things(self, dataset: Any) -> tuple[dict[str, Thing], list[FunctionType]]:
        """The dataset and what it is made of, by name; and functions that it holds, which it may call. Models are
        looked at by nobody: a training changes those at every step."""
        things: dict[str, Thing] = {}
        apart: list[str] = []
        functions: list[FunctionType] = []
        for thing, path, _ in Reached(dataset, GLANCE):
            kind = type(thing)
            if path.startswith(GLOBAL) or issubclass(kind, type) or _is_part_of(path, apart):
                continue
            if kind is FunctionType:
                functions.append(thing)
            elif issubclass(kind, self._module):
                apart.append(path)
            elif thing is dataset or package_of(kind) not in NOT_SCRIPTS:
                values = {str(name): _value(value) for name, value in attributes_of(thing)[:MEMBERS]}
                things.setdefault(path, Thing(id(thing), kind, values))
        return things, functions


def _is_part_of(path: str, wholes: list[str]) -> bool:
    return any(path == whole or path.startswith((whole + ".", whole + "[")) for whole in wholes)


def _value(value: Any) -> Any:
    return value if id(type(value)) in COMPARED else id(value)


def _parts(things: dict[str, Thing]) -> dict[str, tuple[int, dict[str, Any]]]:
    return {path: (thing.is_id, thing.values) for path, thing in things.items()}


def _different(before: dict[str, Thing], now: dict[str, Thing]) -> list[tuple[str, str]]:
    """Names of parts, and of their attributes that are others now; of parts that were there before. One that stands
    there for the first time counts where it hides one of the class: what was not there nobody has read."""
    found = []
    for path, thing in now.items():
        was = before.get(path)
        if was is not None and was.is_id == thing.is_id:
            for name, value in thing.values.items():
                same = was.values[name] == value if name in was.values else not _hides(thing.kind, name)
                if not same:
                    found.append((path, name))
    return found


def _hides(kind: type, name: str) -> bool:
    """Whether the class has a plain value of that name, and not what puts its result there once it is asked."""
    value = next((vars(owner)[name] for owner in MRO(kind) if name in vars(owner)), _hides)
    return value is not _hides and not any("__get__" in vars(owner) for owner in MRO(type(value)))


def _loops(different: list[tuple[str, str]], now: dict[str, Thing], functions: list[FunctionType]) -> str | None:
    """The first that is not put there by what reading the dataset may call; None where that cannot be told."""
    mentioned = {name for each in functions for name in names_in(each.__code__)}
    kinds = {id(thing.kind): thing.kind for thing in now.values()}.values()
    for _ in range(2):  # what one of them mentions may be another's
        for kind in kinds:
            own = is_scripts(module_of(kind))
            called = reading(kind, None, mentioned) if own else [
                each for each in methods_of(kind) if each.__name__ not in MAKING
            ]  # fmt: skip
            functions += called
            mentioned.update(*(names_in(each.__code__) for each in called))
    wanted, stored = {name for _, name in different}, set[str]()
    met: set[int] = set()
    while functions and len(met) < FUNCTIONS:
        function = functions.pop()
        if id(function) in met:
            continue
        met.add(id(function))
        names = set(names_in(function.__code__))
        if is_scripts(str(function.__module__)):
            if names & BY_NAME:
                return None
            helpers = (dict.get(function.__globals__, name) for name in sorted(names))
            functions.extend(each for each in helpers if type(each) is FunctionType)
        if wanted & names:
            stored |= _stored_by(function.__code__)
    if functions:
        return None
    return next((_full(path, name) for path, name in different if name not in stored), None)


def _full(path: str, name: str) -> str:
    return "%s.%s" % (path, name) if path else name


@functools.lru_cache(maxsize=2048)
def _stored_by(code: CodeType) -> frozenset[str]:
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"}
    return frozenset(own.union(*(_stored_by(each) for each in code.co_consts if isinstance(each, CodeType))))

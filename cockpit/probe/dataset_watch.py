"""Whether the script changes its dataset, between epochs or while it trains: workers have it as it was at their start.

Kept for a place where the script makes a loader, perhaps anew each epoch, and for one kind of dataset: what a script
does to one it does to the next. It looks at attributes where they lie, runs no code of the script, and keeps no
dataset alive. What a dataset does to itself as it is read (a cache, a file opened late) is its own affair; what the
loop does to it workers would miss.
"""

from __future__ import annotations

import dis
import functools
import weakref
from types import CodeType, FunctionType
from typing import Any, Callable, NamedTuple

from .groups import Path
from .imported_anew import set_since_import
from .reach import GLANCE, GLOBAL, MAKING, Reached, attributes_of, methods_of, names_in, own_attributes, reading
from .sparing import Sparing
from .taken import Fetches
from .whose import MRO, NAME, NOT_SCRIPTS, is_scripts, module_of, package_of

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
LONG = 200
"""Of a text that is longer about so much is compared: whole ones would be kept after their dataset."""
KINDS = 8
"""Of so many kinds of datasets that one place has had it is known what was seen of them."""
WRAPPED = 5
"""So many datasets, each the next one's ``dataset``, say of which kind the outermost is."""
WHOLE = "every worker served the whole stream: %d samples in an epoch instead of %d"


class Thing(NamedTuple):
    """One part of a dataset as it was: which it is, weakly, and its attributes."""

    which: tuple[Any, ...]
    kind: type
    values: dict[str, Any]


def watch_of(learnt: dict[str, DatasetWatch], dataset: Any, make: Callable[[], DatasetWatch]) -> DatasetWatch:
    """The one in ``learnt``, what is known at one place, for datasets of this kind; for a new loader."""
    kind = _kind_of(dataset)
    watch = learnt.pop(kind, None) or make()
    learnt[kind] = watch  # the newest last
    if len(learnt) > KINDS:
        del learnt[next(iter(learnt))]
    watch.loaders += 1
    return watch


def _kind_of(dataset: Any) -> str:
    """The classes of it and of what it wraps, by name: a class may be made anew as well."""
    names: list[str] = []
    while dataset is not None and len(names) < WRAPPED:
        kind = type(dataset)
        names.append("%s.%s" % (module_of(kind), NAME(kind)))
        if kind is list or kind is tuple:
            names += ["%s.%s" % (module_of(type(item)), NAME(type(item))) for item in dataset[:1]]
            break
        dataset = (own_attributes(dataset) or {}).get("dataset")
    return " ".join(names)


class DatasetWatch:
    """``changed`` since the look before; ``changing``: the first attribute that ever was, at an epoch's start.

    ``stale``: the first of those that the dataset does not change itself as it is read. ``restless``: the first that
    the loop was seen to change in the middle of an epoch. ``whole``: how a stream was seen to be served whole by each
    of its workers.
    """

    def __init__(self, module: type, clock: Callable[[], int]) -> None:
        self._module, self._clock = module, clock
        self.loaders = 0
        """How many DataLoader objects this has been for."""
        self.path: Path | None = None
        """What has served the newest of them."""
        self.own_held: bool | None = None
        """Whether anything was held here while the script's own workers served; None: never seen."""
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
            Fetches(mechanism, iterator, self._taken, self._spares.took).put()

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
        anchor = _weakly(dataset) or self.loaders
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
                # by its number alone it may be another one, where nothing tells that what holds it is still the same
                things.setdefault(path, Thing((_weakly(thing) or (id(thing), anchor),), kind, values))
        return things, functions


def _is_part_of(path: str, wholes: list[str]) -> bool:
    return any(path == whole or path.startswith((whole + ".", whole + "[")) for whole in wholes)


def _value(value: Any) -> Any:
    if id(type(value)) not in COMPARED:
        return id(value)
    if type(value) in (str, bytes) and len(value) > LONG:
        return type(value), len(value), value[:: len(value) // LONG], value[-LONG:]
    return value


def _weakly(thing: Any) -> Any:
    """A reference that says whether something is this very thing, and does not keep it; None where there is none."""
    try:
        return _Which(thing)
    except TypeError:
        return None


class _Which:
    """Of things, not of what they are equal to: that would be asking the script."""

    __slots__ = ("_ref",)

    def __init__(self, thing: Any) -> None:
        self._ref = weakref.ref(thing)

    def __eq__(self, other: object) -> bool:
        mine = self._ref()
        return type(other) is _Which and mine is not None and mine is other._ref()

    __hash__ = None  # type: ignore[assignment]


def _parts(things: dict[str, Thing]) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    return {path: (thing.which, thing.values) for path, thing in things.items()}


def _different(before: dict[str, Thing], now: dict[str, Thing]) -> list[tuple[str, str]]:
    """Names of parts, and of their attributes that are others now; of parts that were there before. One that stands
    there for the first time counts where it hides one of the class: what was not there nobody has read."""
    found = []
    for path, thing in now.items():
        was = before.get(path)
        if was is not None and was.which == thing.which:
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

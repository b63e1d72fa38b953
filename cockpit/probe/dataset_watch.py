"""Whether the script changes its dataset, between epochs or while it trains: workers have it as it was at their start.

Kept by a loader's control. It looks at attributes where they lie, and runs no code of the script. What a dataset does
to itself as it is read (a cache, a file opened late) is its own affair; what the loop does to it workers would miss.
"""

from __future__ import annotations

import dis
from types import FunctionType
from typing import Any, Callable

from .reach import GLOBAL, NOT_SCRIPTS, Limits, Reached, methods_of, names_in, own_attributes, package_of

NEAR = Limits(64, 64, 4)
SHARE = 500
"""Looks that nobody has to have take this part of the time at most: an epoch may be one step."""
COMPARED = (bool, int, float, str, bytes, type(None))
"""By value; all else by identity."""
WHOLE = "every worker served the whole stream: %d samples in an epoch instead of %d"


class DatasetWatch:
    """``changed`` since the look before; ``changing``: the first attribute that ever was, at an epoch's start.

    ``restless``: the first that the loop was seen to change in the middle of one. ``whole``: how a stream was seen to
    be served whole by each of its workers.
    """

    def __init__(self, module: type, clock: Callable[[], int]) -> None:
        self._module, self._clock = module, clock
        self._seen: dict[str, Any] | None = None
        self._here: dict[str, Any] | None = None
        self._free_ns = 0
        self.changed = False
        self.changing: str | None = None
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
        if not needed and began_ns < self._free_ns:
            self._here = None
            return
        now, _ = self._attributes(dataset)
        seen, self._seen, self._here = self._seen, now, now
        different = _different(seen, now)
        self.changed = bool(different)
        self.changing = self.changing or (different[0] if different else None)
        self._took(began_ns)

    def look_within(self, dataset: Any) -> None:
        """In the middle of that epoch, or at its very end."""
        began_ns = self._clock()
        if self.restless is not None or self._here is None:
            return
        now, owners = self._attributes(dataset)
        different = _different(self._here, now)
        if different:
            mentioned = {name for kind in owners.values() for each in methods_of(kind) for name in _names(each)}
            loops = (name for name in different if not _does_it_itself(owners[name], name.split(".")[-1], mentioned))
            self.restless = next(loops, None)
        self._took(began_ns)

    def _took(self, began_ns: int) -> None:
        now_ns = self._clock()
        self._free_ns = now_ns + SHARE * (now_ns - began_ns)

    def _attributes(self, dataset: Any) -> tuple[dict[str, Any], dict[str, type]]:
        """Of the dataset and of what it is made of, by name; and whose they are. Models are looked at by nobody: a
        training changes those at every step."""
        values: dict[str, Any] = {}
        owners: dict[str, type] = {}
        apart: list[str] = []
        for thing, path, _ in Reached(dataset, NEAR):
            kind = type(thing)
            if path.startswith((GLOBAL, *apart)) or issubclass(kind, (type, FunctionType)):
                continue
            if issubclass(kind, self._module):
                apart.append(path)
            elif thing is dataset or package_of(kind) not in NOT_SCRIPTS:
                for name, value in list((own_attributes(thing) or {}).items()):
                    full = "%s.%s" % (path, name) if path else str(name)
                    values[full] = value if type(value) in COMPARED else id(value)
                    owners[full] = kind
        return values, owners


def _different(seen: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    return [name for name, value in now.items() if seen is not None and seen.get(name) != value]


def _names(function: FunctionType) -> set[str]:
    return set(names_in(function.__code__))


def _does_it_itself(kind: type, attribute: str, mentioned: set[str]) -> bool:
    """Whether a method that reading the dataset may call puts it there: a special one, or one that others mention."""
    for method in methods_of(kind):
        name = method.__name__
        special = name.startswith("__") and name not in ("__init__", "__setattr__")
        if (special or name in mentioned) and attribute in _stored_by(method):
            return True
    return False


def _stored_by(function: FunctionType) -> set[str]:
    return {each.argval for each in dis.get_instructions(function.__code__) if each.opname == "STORE_ATTR"}

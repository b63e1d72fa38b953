"""Whether the loop takes what the dataset writes down as it is read: in workers it would be written down there.

A list of what was served, emptied after each batch; a table of losses that both sides fill. Asked of torch's own
iterator at an epoch's start, for a few fetches and where there is time for it. What only grows as samples are read (a
cache) is nobody's affair, nor is what another loader changed in between, nor the batch itself. It looks at lengths,
versions and identities, and runs nothing of the script.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence, Set
from itertools import islice
from typing import Any, Callable, NamedTuple

from .guard import unseen
from .memory import memory_of
from .reach import GLANCE, GLOBAL, Reached

FETCHES = 3
"""So many are looked at: what is emptied now and then shows at another epoch's start."""
CONTAINERS = frozenset(map(id, (list, deque, dict, set)))
ALIKE = 16
"""So many members of a container are compared, and so many parts of a batch."""


class Mark(NamedTuple):
    """A container or a tensor as it is: which, how long or of which version, and its first members."""

    which: int
    size: int
    first: tuple[int, ...] = ()
    grows: bool = False
    """Whether it is longer later, with the same first members, where something was only added."""

    def is_only_longer(self, now: Mark) -> bool:
        if not self.grows or now.which != self.which or now.size < self.size:
            return False
        return now.first[: len(self.first)] == self.first


def marks(torch: Any, dataset: Any, handed_out: Set[int] = frozenset()) -> dict[str, Mark]:
    """What is held there and can be changed in place, by name. Not what lies in storages that were ``handed_out``."""
    found: dict[str, Mark] = {}
    met: set[str] = set()
    for thing, path, _ in Reached(dataset, GLANCE):
        if path in met or path.startswith(GLOBAL):
            continue  # what a thing is made of inside comes after it, under its name
        met.add(path)
        kind = type(thing)
        if id(kind) in CONTAINERS:
            first = () if kind is set else tuple(map(id, islice(thing, ALIKE)))  # a set has no order
            found[path] = Mark(id(thing), len(thing), first, grows=True)
        elif kind is torch.Tensor and not thing.is_inference() and _address_of(thing) not in handed_out:
            found[path] = Mark(id(thing), thing._version)
    return found


def _address_of(tensor: Any) -> int:
    memory = memory_of(tensor)
    return memory.address if memory is not None else 0


def storages_in(torch: Any, data: Sequence[Any]) -> set[int]:
    """Of the tensors of a batch, those that are not too deep in it."""
    found, parts = set[int](), deque(data)
    for _ in range(ALIKE):
        if not parts:
            break
        part = parts.popleft()
        if type(part) is torch.Tensor:
            found.add(_address_of(part))
        elif type(part) in (list, tuple):
            parts.extend(part[:ALIKE])
        elif type(part) is dict:
            parts.extend(islice(part.values(), ALIKE))
    return found - {0}


class Fetches:
    """In the place of an iterator's ``_next_data`` for some calls; ``took(path)`` hears of what both sides change,
    ``spent`` how long each look was, from when to when."""

    def __init__(
        self, mechanism: Any, iterator: Any, took: Callable[[str], None], spent: Callable[[int, int], None]
    ) -> None:
        self._mechanism, self._iterator = mechanism, weakref.ref(iterator)
        self._took, self._spent = took, spent
        self._left = FETCHES
        self._marks: dict[str, Mark] | None = None
        self._handed_out: set[int] = set()
        self._fetches = 0
        self._by_loop: set[str] = set()
        self._by_fetch: set[str] = set()

    def put(self) -> None:
        self._iterator().__dict__["_next_data"] = self

    def __call__(self) -> Any:
        iterator: Any = self._iterator()
        try:
            self._mechanism.run("taken", self._look, iterator._dataset, self._by_loop)
            data = type(iterator)._next_data(iterator)
        except BaseException as error:
            self._leave(iterator)
            unseen(error, 1)
            raise
        self._mechanism.run("taken", self._look, iterator._dataset, self._by_fetch, [data])
        self._left -= 1
        if self._left < 0:
            self._leave(iterator)
        return data

    def _look(self, dataset: Any, changed: set[str], handed_out: Sequence[Any] = ()) -> None:
        """``handed_out``: the batch, after a fetch of ours."""
        mechanism = self._mechanism
        began_ns, torch = mechanism.clock(), mechanism.torch
        mine = bool(handed_out)
        fetches = mechanism.fetches() + mine  # ours is counted when it is over
        nobody_else, self._fetches = mine or fetches <= self._fetches, fetches
        self._handed_out |= storages_in(torch, handed_out)
        now = marks(torch, dataset, self._handed_out)
        if self._marks is not None and nobody_else:
            before = self._marks
            for path, mark in now.items():
                was = before.get(path, mark)
                if was != mark and (mine or not was.is_only_longer(mark)):
                    changed.add(path)
        self._marks = now
        both = self._by_loop & self._by_fetch
        if both:
            self._took(min(both))
        self._spent(began_ns, mechanism.clock())

    def _leave(self, iterator: Any) -> None:
        if iterator.__dict__.get("_next_data") is self:  # a swap may have put its own there
            del iterator.__dict__["_next_data"]

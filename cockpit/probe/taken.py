"""Whether the loop takes what the dataset writes down as it is read: in workers it would be written down there.

A list of what was served, emptied after each batch; a table of losses that both sides fill. Asked of torch's own
iterator at an epoch's start, for a few fetches and where there is time for it. What only grows as samples are read (a
cache) is nobody's affair. It looks at lengths, versions and identities, and runs nothing of the script.
"""

from __future__ import annotations

import weakref
from collections import deque
from itertools import islice
from typing import Any, Callable

from .guard import unseen
from .reach import GLANCE, GLOBAL, Reached

FETCHES = 3
"""So many are looked at: what is emptied now and then shows at another epoch's start."""
CONTAINERS = frozenset(map(id, (list, deque, dict, set)))
ALIKE = 16
"""So many members of a container are compared."""


def marks(torch: Any, dataset: Any) -> dict[str, Any]:
    """What is held there and can be changed in place, by name: as it is now."""
    found: dict[str, Any] = {}
    met: set[str] = set()
    for thing, path, _ in Reached(dataset, GLANCE):
        if path in met or path.startswith(GLOBAL):
            continue  # what a thing is made of inside comes after it, under its name
        met.add(path)
        kind = type(thing)
        if id(kind) in CONTAINERS:
            found[path] = (id(thing), len(thing), *map(id, islice(thing, ALIKE)))
        elif kind is torch.Tensor and not thing.is_inference():
            found[path] = (id(thing), thing._version)
    return found


class Fetches:
    """In the place of an iterator's ``_next_data`` for some calls; ``took(path)`` hears of what both sides change."""

    def __init__(self, torch: Any, iterator: Any, run: Callable[..., Any], took: Callable[[str], None]) -> None:
        self._torch, self._iterator = torch, weakref.ref(iterator)
        self._run, self._took = run, took
        self._left = FETCHES
        self._marks: dict[str, Any] | None = None
        self._by_loop: set[str] = set()
        self._by_fetch: set[str] = set()

    def put(self) -> None:
        self._iterator().__dict__["_next_data"] = self

    def __call__(self) -> Any:
        iterator: Any = self._iterator()
        try:
            self._run("taken", self._look, iterator._dataset, self._by_loop)
            data = type(iterator)._next_data(iterator)
        except BaseException as error:
            self._leave(iterator)
            unseen(error, 1)
            raise
        self._run("taken", self._look, iterator._dataset, self._by_fetch)
        self._left -= 1
        if self._left < 0:
            self._leave(iterator)
        return data

    def _look(self, dataset: Any, changed: set[str]) -> None:
        now = marks(self._torch, dataset)
        if self._marks is not None:
            before = self._marks
            changed.update(path for path, mark in now.items() if path in before and before[path] != mark)
        self._marks = now
        both = self._by_loop & self._by_fetch
        if both:
            self._took(min(both))

    def _leave(self, iterator: Any) -> None:
        if iterator.__dict__.get("_next_data") is self:  # a swap may have put its own there
            del iterator.__dict__["_next_data"]

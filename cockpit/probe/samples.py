"""How many samples a batch holds: from the sampler's own index batch, else from the data; never from ``batch_size``.

Called by the hooks. It never guesses: what cannot be told is None.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping
from typing import Any, Callable

from .guard import unseen

SIZES = "_cockpit_sizes"
"""Attribute of an iterator: lengths of the index batches handed to it and not yet delivered, in order."""


def counting(original: Any, is_compiling: Callable[[], bool]) -> Callable[[Any], Any]:
    """A ``_next_index`` that remembers how long each index batch was; nothing in it can fail."""

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        try:
            index = original(self)
        except BaseException as error:
            unseen(error, 1)
            raise
        if not is_compiling():
            sizes = self.__dict__.get(SIZES)
            if sizes is None:
                sizes = self.__dict__[SIZES] = deque()
            sizes.append(len(index) if type(index) in (list, tuple) else None)
        return index

    return _next_index


def first_dimension(data: Any, depth: int) -> int | None:
    """Length of the first tensor found in ``data``, or None: never a guess."""
    try:
        shape = getattr(data, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else None
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # a nested or symbolic tensor has no such number
    if depth and isinstance(data, Mapping):
        data = list(data.values())
    if depth and isinstance(data, (list, tuple)):
        for item in data[:8]:
            found = first_dimension(item, depth - 1)
            if found is not None:
                return found
    return None

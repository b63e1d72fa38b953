"""Applies one change to every tensor in what a forward returns, through the containers that models return.

Called after each forward that ran under our autocast (cast back to float32) or replays recorded kernels (copies).
It must hand on anything that it does not know as it is, and never change a container in place.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Callable

DEEPEST = 8
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Outputs:
    """``changed(value)`` is the value with ``change`` done to each tensor for which ``wants(tensor)``.

    ``unknown`` names the type of a container that held such a tensor and was handed on untouched, or is None.
    """

    def __init__(self, tensor_class: type, wants: Callable[[Any], bool], change: Callable[[Any], Any]) -> None:
        self._tensor_class = tensor_class
        self._wants = wants
        self._change = change
        self.unknown: str | None = None

    def changed(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, self._tensor_class):
            return self._change(value) if self._wants(value) else value
        if isinstance(value, _PLAIN):
            return value
        if depth > DEEPEST:
            self._pass(value)
            return value
        kind = type(value)
        if kind in (tuple, list) or (isinstance(value, tuple) and (hasattr(value, "_make") or _is_struct(kind))):
            items = [self.changed(item, depth + 1) for item in value]
            if all(new is old for new, old in zip(items, value)):
                return value
            return getattr(kind, "_make", kind)(items)
        if kind is dict or isinstance(value, OrderedDict):
            return self._mapping(value, depth)
        if dataclasses.is_dataclass(value):
            return self._dataclass(value, depth)
        self._pass(value)
        return value

    def _mapping(self, value: Any, depth: int) -> Any:
        new = {key: self.changed(item, depth + 1) for key, item in value.items()}
        moved = {key: item for key, item in new.items() if item is not value[key]}
        if not moved:
            return value
        out = copy.copy(value)
        for key, item in moved.items():
            out[key] = item  # a ModelOutput keeps its attributes in step by this
        return out

    def _dataclass(self, value: Any, depth: int) -> Any:
        moved = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name, None)
            new = self.changed(old, depth + 1)
            if new is not old:
                moved[field.name] = new
        if not moved:
            return value
        out = copy.copy(value)
        for name, item in moved.items():
            object.__setattr__(out, name, item)
        return out

    def _pass(self, value: Any) -> None:
        inside = list(value.values()) if isinstance(value, Mapping) else list(getattr(value, "__dict__", {}).values())
        if isinstance(value, (tuple, list, set, frozenset)):
            inside += list(value)
        if any(isinstance(item, self._tensor_class) and self._wants(item) for item in inside):
            self.unknown = type(value).__name__


def _is_struct(kind: type) -> bool:
    """torch's own return types (``torch.max`` with a dimension)."""
    return hasattr(kind, "n_sequence_fields")

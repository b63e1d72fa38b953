"""Frozen dataclasses to plain JSON values and back, by their type hints. Used by journal, engine and clients.

Unknown fields are ignored and missing ones take their defaults, so that neighbours of one schema number
can differ by a field. It never decides what an event means.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from ..model.events import EVENTS, Event

T = TypeVar("T")
_EVENT_BY_NAME: dict[str, type] = {kind.__name__: kind for kind in EVENTS}


def to_plain(value: Any) -> Any:
    """``value`` as dicts, lists, strings, numbers, booleans and None; fields at their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: to_plain(item)
            for name, default in _defaults(type(value))
            if (item := getattr(value, name)) != default
        }
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return value


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (f.name, f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default)
        for f in dataclasses.fields(kind)
    )


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def from_plain(kind: type[T], data: Any) -> T:
    """The dataclass ``kind`` from plain values; raises TypeError or ValueError where they cannot be it."""
    return typing.cast(T, _build(kind, data))


def _build(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        hints = _hints(typing.cast(type, hint))
        return typing.cast(type, hint)(
            **{name: _build(hints[name], item) for name, item in data.items() if name in hints}
        )
    if origin is tuple:
        args = typing.get_args(hint)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_build(args[0], item) for item in data)
        return tuple(_build(arg, item) for arg, item in zip(args, data))
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        rich = [arg for arg in typing.get_args(hint) if dataclasses.is_dataclass(arg) or typing.get_origin(arg)]
        return _build(rich[0], data) if rich else data
    if origin is not None and issubclass(origin, Mapping):
        item_hint = typing.get_args(hint)[1]
        return {key: _build(item_hint, item) for key, item in data.items()}
    if hint is float and isinstance(data, int):
        return float(data)
    return data


def event_to_plain(event: Event) -> dict[str, Any]:
    """An event as a JSON object, its kind under ``e``."""
    return {"e": type(event).__name__, **to_plain(event)}


def event_from_plain(data: Mapping[str, Any]) -> Event | None:
    """The event, or None where the kind is unknown or the fields do not fit (a newer or damaged line)."""
    kind = _EVENT_BY_NAME.get(str(data.get("e")))
    if kind is None:
        return None
    try:
        return typing.cast(Event, from_plain(kind, data))
    except (TypeError, ValueError, AttributeError, KeyError):
        return None

"""Any state at all from a seed: every field of every dataclass, from its type. Odder than a run can be.

Grown with ``random`` from one drawn integer: drawing each of its thousand fields by Hypothesis took minutes.
"""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cockpit.analysis.compare import WORDS
from cockpit.history.state import Ring, State
from cockpit.model.knobs import BY_NAME

ODD_FLOATS = [0.0, -1.0, 1e-9, 0.5, 1.0, 3.7, 250.0, 1e6, 1e18, float("nan"), float("inf"), 1_800_000_000.0]
ODD_INTS = [-1, 0, 1, 7, 64, 10**12]
ODD_TEXT = [
    "", "x", "train.py", "[/markup]", "\x1b[2J\x1b[H", "a\rb", "日本語の訓練.py", "é" * 90, "a b " * 40, "\ud800",
    "\u202e", "\x9b31m", "tab\there", "e\u0301", "👩‍👩‍👧",
]  # fmt: skip
CHOICES: dict[str, list[Any]] = {
    "phase": ["starting", "running", "running", "stopping", "ended", "lost"],
    "probe": ["waiting", "connected", "connected", "lost"],
    "state": ["queued", "applying", "settling", "kept", "kept", "rolled_back", "refused", "reverted"],
    "verdict": list(WORDS),
    "role": ["train", "other", "unknown"],
    "origin": ["person", "schedule", "undo", "redo"],
    "name": list(BY_NAME),
    "doing": ["loader", "forward", None],
}
VALUES = [True, False, 0, 1, 2, 4, 64, "script", "bf16"]


class Grower:
    """Makes values of any type from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def state(self) -> State:
        """A state with rings of the usual widths."""
        rings = tuple(dataclasses.replace(self.of(Ring), width_s=width_s) for width_s in (0.5, 5.0, 60.0))
        return dataclasses.replace(self.of(State), rings=rings)

    def of(self, kind: Any) -> Any:
        """An instance of a dataclass."""
        return kind(**{name: self._field(name, hint) for name, hint in _hints(kind).items()})

    def text(self) -> str:
        return self.random.choice(ODD_TEXT)

    def number(self) -> float:
        pick = self.random
        return pick.choice(ODD_FLOATS) if pick.random() < 0.3 else pick.uniform(0.0, 10.0 ** pick.randint(-3, 4))

    def _field(self, name: str, hint: Any) -> Any:
        if name in CHOICES:
            return self.random.choice(CHOICES[name])
        if name == "steps":
            return self.random.randint(1, 500)  # the probe never sends a block without steps
        if name in ("asked", "setup"):
            names = [*BY_NAME, "unheard_of", "env MINE", "process"]
            return self._some(names, lambda: self.random.choice(VALUES))
        if name == "change" and "tuple" in str(hint):
            values = [None, *VALUES]
            return self._some(list(BY_NAME), lambda: (self.random.choice(values), self.random.choice(values)))
        return self._type(hint)

    def _some(self, names: list[str], value: Any) -> dict[str, Any]:
        return {name: value() for name in self.random.sample(names, self.random.randint(0, min(4, len(names))))}

    def _type(self, hint: Any) -> Any:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._type(self.random.choice(args))
        if origin is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return tuple(self._type(args[0]) for _ in range(self.random.randint(0, 3)))
            return tuple(self._type(arg) for arg in args)
        if origin is not None and issubclass(origin, Mapping):
            value = {float: self.number, str: self.text}.get(args[1], lambda: self.random.choice(VALUES))
            if typing.get_origin(args[1]) in (Mapping, tuple):
                value = lambda: self._type(args[1])  # noqa: E731
            return {self.text(): value() for _ in range(self.random.randint(0, 2))}
        if dataclasses.is_dataclass(hint):
            return self.of(hint)
        if hint is int:
            return self.random.choice([*ODD_INTS, self.random.randint(0, 2000)])
        plain = {float: self.number, str: self.text, bool: lambda: self.random.random() < 0.5, type(None): lambda: None}
        return plain[hint]()


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}

"""Hooks that the script sets on a compiled model after it was compiled, or takes off: the compiled code knows neither.

Dynamo does not guard the tables of hooks (``skip_nnmodule_hook_guards``), so they would silently not run, or run for
ever. Asked before each call that would be compiled; while the hooks are not those that were compiled in, the call
has to run without. It only looks at torch's tables, and only where torch has numbered a hook since or one is gone; a
hook may hold the model, so it holds none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from .caught import place_of

_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
               "_global_backward_pre_hooks")  # fmt: skip


class LateHooks:
    """Of one root. ``words``: why its call runs uncompiled just now, or None."""

    def __init__(self, torch: Any) -> None:
        self._everywhere = torch.nn.modules.module
        self._numbers = torch.utils.hooks.RemovableHandle
        self._numbered: int | None = None
        self._filled: list[Any] = []
        self._count = 0
        self._compiled: dict[int, str] | None = None
        """Where those were made that were there at the first call, by torch's number."""
        self.words: str | None = None

    def differ(self, module: Any) -> bool:
        """Whether ``module`` has not the hooks that it was compiled with; the first call is the one that compiles."""
        numbered = getattr(self._numbers, "next_id", None)
        if numbered is None or numbered != self._numbered or (self._filled and self._counted() != self._count):
            self._numbered = numbered
            self._look(module)
        return self.words is not None

    def _counted(self) -> int:
        return sum(len(table) for ref in self._filled if (table := ref()) is not None)

    def _look(self, module: Any) -> None:
        tables = [table for table in self._tables(module) if table]
        found = {number: place_of(hook) for table in tables for number, hook in table.items()}
        self._filled, self._count = [weakref.ref(table) for table in tables], sum(map(len, tables))
        if self._compiled is None:
            self._compiled = found
        self.words = _words(self._compiled, found)

    def _tables(self, module: Any) -> Iterator[Any]:
        for name in _EVERYWHERE:
            yield getattr(self._everywhere, name, None)
        for part in module.modules():
            attributes = part.__dict__
            for name in _TABLES:
                yield attributes.get(name)


def _words(compiled: dict[int, str], found: dict[int, str]) -> str | None:
    for number, place in found.items():
        if number not in compiled:
            return "runs uncompiled while a hook is on the model that was not compiled in (%s)" % place
    for number, place in compiled.items():
        if number not in found:
            return "runs uncompiled since a hook that was compiled in is gone (%s)" % place
    return None

"""Hooks that the script sets on a compiled model after it was compiled, or takes off: the compiled code knows neither.

Dynamo does not guard the tables of hooks (``skip_nnmodule_hook_guards``), so they would silently not run, or run for
ever. Asked before each call that would be compiled; while the hooks are not those that were compiled in, the call
has to run without. It only looks at torch's tables, and goes through the modules only where torch has numbered or
removed a module's hook since. A table that the script has emptied or put another in the place of by hand is found a
few tables a call. A hook may hold the model, so it holds none, and no table.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..guard import _raised_by_signal_handler as raised_by_signal_handler
from ..outcomes import why
from .caught import place_of
from .hook_numbers import hook_numbers

_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
               "_global_backward_pre_hooks")  # fmt: skip
_AT_ONCE = 2
LATE = "runs uncompiled while a hook is on the model that was not compiled in (%s)"
GONE = "runs uncompiled since a hook that was compiled in is gone (%s)"
UNKNOWN = "runs uncompiled: its hooks could not be looked at (%s)"


class LateHooks:
    """Of one root: of each compiled code of it, by the setting that it was compiled for.

    ``words``: why the last call ran uncompiled, or None."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._of: dict[Any, CompiledIn] = {}
        self._called: set[Any] = set()
        self.words: str | None = None

    def asked(self) -> None:
        """A setting was asked for."""
        self._called.clear()
        self.words = None

    def keep(self, *settings: Any) -> None:
        """No code is made anew for them until something is asked for: what a call falls back on must not fail too."""
        self._called.update(settings)

    def differ(self, setting: Any, module: Any, codes: dict[Any, Any]) -> bool:
        """Whether ``module`` has not the hooks that are in the code of ``setting``. At the first call after it was
        asked for that code is dropped from ``codes`` if so, and is to be made with the hooks that are there now."""
        hooks = self._of.get(setting)
        if hooks is None:
            hooks = self._of[setting] = CompiledIn(self._torch)
        differs = hooks.differ(module)
        if setting not in self._called:
            self._called.add(setting)
            if differs:
                codes.pop(setting, None)
                hooks = self._of[setting] = CompiledIn(self._torch)
                differs = hooks.differ(module)
        self.words = hooks.words
        return differs


class _Table(NamedTuple):
    """One that has hooks, as it was found: ``which`` it was, of what ``owner`` (weakly), with how many hooks."""

    owner: Any
    name: str
    which: int
    length: int


def _moved(tables: tuple[_Table, ...]) -> bool:
    for ref, name, which, length in tables:  # at each call: as few as can be, and no function of ours
        owner = ref()
        table = None if owner is None else owner.__dict__.get(name)
        if table is None or id(table) != which or len(table) != length:
            return True
    return False


def _emptied(watched: list[_Table], filled: set[tuple[int, str]]) -> Iterator[_Table]:
    """Those that had hooks before: the script may fill them again by hand."""
    for ref, name, _, _ in watched:
        owner = ref()
        table = None if owner is None else owner.__dict__.get(name)
        if table is not None and (id(owner), name) not in filled:
            yield _Table(ref, name, id(table), len(table))


class CompiledIn:
    """The hooks that are in one compiled code. ``words``: why the call cannot be that code just now, or None."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._numbers: Any = None
        self._mark: int | None = None
        self._watched: list[_Table] = []
        self._tables: Iterator[tuple[_Table, ...]] = itertools.repeat(())
        self._compiled: dict[Any, str] | None = None
        """Where those were made that were there at the first call, by the owner, the table and torch's number."""
        self._blind = False
        self.words: str | None = None

    def differ(self, module: Any) -> bool:
        """Whether ``module`` has not the hooks that it was compiled with; the first call is the one that compiles."""
        if self._blind:
            return True
        try:
            if self._numbers is None:
                self._numbers = hook_numbers(self._torch)
            mark = self._numbers.mark()
            if mark is None or mark != self._mark or _moved(next(self._tables)):
                self._look(module)
                self._mark = mark
        except Exception as error:  # the call of the script must not be taken for what failed
            if raised_by_signal_handler(error.__traceback__):
                raise
            self._blind, self.words = True, UNKNOWN % why(error)
        return self.words is not None

    def _look(self, module: Any) -> None:
        tables, found, filled = [], {}, set()
        for owner, name, table in _filled(self._torch.nn.modules.module, module):
            hooks = dict(table)
            filled.add((id(owner), name))
            tables.append(_Table(weakref.ref(owner), name, id(table), len(hooks)))
            found.update({(id(owner), name, number): hook for number, hook in hooks.items()})
        tables += _emptied(self._watched, filled)
        self._numbers.watched.update(number for _, _, number in found)
        parts = [tuple(tables[at : at + _AT_ONCE]) for at in range(0, len(tables), _AT_ONCE)]
        self._watched, self._tables = tables, itertools.cycle(parts or [()])
        if self._compiled is None:
            self._compiled = {key: place_of(hook) for key, hook in found.items()}
        self.words = _words(self._compiled, found)


def _filled(everywhere: Any, module: Any) -> Iterator[tuple[Any, str, Any]]:
    """The tables with hooks: whose, what it is called there, and itself."""
    for name in _EVERYWHERE:
        table = getattr(everywhere, name, None)
        if table:
            yield everywhere, name, table
    todo, met = [module], set()
    while todo:  # many times quicker than module.modules()
        part = todo.pop()
        if part is None or id(part) in met:
            continue
        met.add(id(part))
        attributes = part.__dict__
        for name in _TABLES:
            table = attributes.get(name)
            if table:
                yield part, name, table
        todo.extend((attributes.get("_modules") or {}).values())


def _words(compiled: dict[Any, str], found: dict[Any, Any]) -> str | None:
    for key, hook in found.items():
        if key not in compiled:
            return LATE % place_of(hook)
    for key, place in compiled.items():
        if key not in found:
            return GONE % place
    return None

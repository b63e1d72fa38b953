"""Tells apart, by counting, whether torch has numbered or removed a hook of any module: each tensor's has a number too.

A loop that sets a hook on a tensor in each step would else have the whole model looked through in each. Put in place
at the first compiled call; where torch's handles cannot be wrapped, or somebody else makes them, a number counts as a
module's and is looked for.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from ..guard import UNSEEN, disguise

_NO_MODULES = (
    ("Tensor", "register_hook"), ("Tensor", "register_post_accumulate_grad_hook"),
    ("autograd.function._HookMixin", "_register_hook"),
    ("optim.Optimizer", "register_step_pre_hook"), ("optim.Optimizer", "register_step_post_hook"),
)  # fmt: skip

_by_kind: dict[Any, HookNumbers] = {}


class HookNumbers:
    """``watched``: the numbers of modules' hooks that are to be noticed when they are removed."""

    def __init__(self, torch: Any) -> None:
        self._kind = torch.utils.hooks.RemovableHandle
        self._others = set(filter(None, (_code(torch, path, name) for path, name in _NO_MODULES)))
        self._is_compiling = torch.compiler.is_compiling
        self._skip = getattr(torch._C._dynamo.eval_frame, "skip_code", lambda code: None)  # Dynamo would compile it
        self._apart = self._removed = 0
        self.watched: set[int] = set()

    def mark(self) -> int | None:
        """Another one wherever a hook of some module was set or removed since; None where torch counts otherwise."""
        numbered = getattr(self._kind, "next_id", None)
        return None if numbered is None else numbered - self._apart + self._removed

    def count(self) -> None:
        """From now on."""
        made, removed, others, is_compiling = self._kind.__init__, self._kind.remove, self._others, self._is_compiling

        def made_one(handle: Any, *args: Any, **kwargs: Any) -> None:
            made(handle, *args, **kwargs)
            if not is_compiling() and _caller() in others:
                self._apart += 1

        def remove(handle: Any) -> None:
            removed(handle)
            if not is_compiling() and getattr(handle, "id", None) in self.watched:
                self.watched.discard(handle.id)
                self._removed += 1

        for ours, original in ((made_one, made), (remove, removed)):
            disguise(ours, original, UNSEEN)
            self._skip(ours.__code__)
        self._kind.__init__, self._kind.remove = made_one, remove


def hook_numbers(torch: Any) -> HookNumbers:
    """The one that counts in this process."""
    kind = torch.utils.hooks.RemovableHandle
    if kind not in _by_kind:
        _by_kind[kind] = numbers = HookNumbers(torch)
        numbers.count()
    return _by_kind[kind]


def _caller() -> CodeType | None:
    """What made the handle; a thread may have nothing below."""
    try:
        return sys._getframe(2).f_code
    except ValueError:
        return None


def _code(torch: Any, path: str, name: str) -> Any:
    """Of a function of torch that makes handles for something that is no module; None where this torch has none."""
    found = torch
    for part in (*path.split("."), name):
        found = getattr(found, part, None)
    return getattr(found, "__code__", None)

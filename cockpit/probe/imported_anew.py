"""What workers that are not forked would not have: they import the script, and what it has set since is not there.

Asked by ``refusals``. It reads the script's text, once, and runs nothing of it.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from .reach import Limits, Reached, names_in
from .whose import is_scripts, module_of_function

NEAR = Limits(200, 32, 4, 2_000)


def set_since_import(loader: Any) -> str | None:
    """A name of a module that reading the dataset uses, and that a function or the main part of the module sets."""
    for root in (loader.dataset, loader.collate_fn):
        for thing, _, _ in Reached(root, NEAR):
            # what a package has set, it sets again where it needs it
            if type(thing) is FunctionType and is_scripts(module_of_function(thing)):
                module = sys.modules.get(thing.__module__ or "")
                if module is not None and vars(module) is thing.__globals__:
                    used = set_later(getattr(module, "__file__", None) or "") & set(names_in(thing.__code__))
                    if used:
                        return min(used)
    return None


@functools.lru_cache(maxsize=64)
def set_later(file: str) -> frozenset[str]:
    """Names of the module's own that an import of it does not set: behind ``global``, or ``if __name__ == ...``."""
    try:
        with open(file, "rb") as text:
            tree = ast.parse(text.read())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    known = {name for node in tree.body if not _is_guard(node) for name in _assigned(node)}
    later: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            later.update(node.names)
    for guard in filter(_is_guard, tree.body):
        later.update(name for node in ast.iter_child_nodes(guard) for name in _assigned(node))
    return frozenset(later & known)  # a name that the import does not set at all fails, and that is told


def _is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _assigned(node: ast.AST) -> Iterator[str]:
    """Names that a statement of the module sets, but for what its functions and classes do inside."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _assigned(child)

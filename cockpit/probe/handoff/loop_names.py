"""What the script's own loop carries from one epoch into the next in plain names: read in its source, never looked up.

Called by ``live`` where the loop over ``run.epochs`` begins: a new process has such a name as the lines before the loop
make it, and whoever is about to ask for one should know. Only names that the loop itself reads before it sets them
count, so that what is made in each epoch is none. It runs no code of the script, and must never hold one up.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from .. import begins_again
from ..guard import attempt

LARGEST = 2**20
TOLD = 4
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def carried(file: str, line: int) -> tuple[str, ...]:
    """Of the ``for`` in whose head ``line`` stands; nothing where it cannot be read."""
    return attempt(_carried, file, line)[0] or ()


def sentence(names: tuple[str, ...]) -> str | None:
    """Without its end; None where there are none."""
    if not names:
        return None
    more = " and %d more" % (len(names) - TOLD) if len(names) > TOLD else ""
    listed = ", ".join(names[:TOLD]) + more
    return (
        "the loop goes on with %s from epoch to epoch: a new process has what the lines before the loop make" % listed
    )


def _carried(file: str, line: int) -> tuple[str, ...]:
    found = os.stat(file)
    if found.st_mtime > begins_again.BEGAN_S or found.st_size > LARGEST:
        return ()  # it is not what runs, or would hold the script up
    tree = begins_again.compiled(file, ast.PyCF_ONLY_AST)
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.iter.lineno <= line <= (node.iter.end_lineno or 0)
    ]
    if not loops:
        return ()
    loop, scope = loops[-1], _scope_of(tree, loops[-1])
    arguments = getattr(scope, "args", None)
    before = {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)} if arguments else set[str]()
    for node in _same_scope(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < loop.lineno:
            before.add(node.id)
    first: dict[str, bool] = {}
    stored = set[str]()
    for name, stores in _in_order(loop.body):
        first.setdefault(name, stores)
        if stores:
            stored.add(name)
    of_the_loop = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    return tuple(name for name, was in first.items() if not was and name in stored & before - of_the_loop)


def _scope_of(tree: ast.AST, loop: ast.AST) -> ast.AST:
    found = tree
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES) and loop in ast.walk(node):
            found = node  # an inner one comes later
    return found


def _same_scope(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _same_scope(child)


def _in_order(nodes: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Names as they are come to, each with whether it is set there."""
    for node in nodes:
        yield from _come_to(node)


def _come_to(node: ast.AST) -> Iterator[tuple[str, bool]]:
    if isinstance(node, _SCOPES):
        return
    if isinstance(node, _COMPREHENSIONS):  # its own names are nobody else's
        events = [each for child in ast.iter_child_nodes(node) for each in _come_to(child)]
        own = {name for name, stores in events if stores}
        yield from (each for each in events if each[0] not in own)
    elif isinstance(node, ast.AugAssign):  # reads, too
        if isinstance(node.target, ast.Name):
            yield node.target.id, False
        yield from _come_to(node.value)
        yield from _come_to(node.target)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        if node.value is not None:
            yield from _come_to(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _come_to(target)
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _come_to(node.iter)
        yield from _come_to(node.target)
        yield from _in_order([*node.body, *node.orelse])
    elif isinstance(node, ast.Name):
        yield node.id, isinstance(node.ctx, ast.Store)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _come_to(child)

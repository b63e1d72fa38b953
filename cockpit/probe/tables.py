"""Whether what a script makes of a loader's length is a table that more steps would run past: by reading its source.

Called by ``lengths`` when smaller batches are asked for, and not before: an untouched training is never read.
Only what is certain counts: a table of a size that came from that very ``len()``, taken from by a number that counts
steps, with nothing around it that minds the end. Whatever is doubtful is no table. It runs no code of the script.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

LARGEST = 2**20
"""Bytes of a script that is read."""
ROUNDS = 8
"""So many names may lie between the length and the table."""

SIZE, TABLE = "size", "table"


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


NUMBERS = _words("int float round max min ceil floor abs")
MAKERS = _words("range arange linspace logspace geomspace zeros ones empty full rand randn randperm permutation repeat")
"""What makes a table of a size."""
KEEPERS = _words(
    "list tuple array asarray tensor as_tensor from_numpy iter reversed sorted deque cumsum cumprod concatenate cat"
    " clip flip map cos sin exp sqrt log interp tolist numpy float double to cpu cuda clone copy astype clamp detach"
)
"""What makes of a table another one as long."""
LISTS = _words("range zip items values keys sorted list")
"""What is gone through, and is no loader."""
BOUND = _words("min len clamp clip randrange randint choice argmin argmax")
"""An index that one of these made stays within."""
CAUGHT = _words("IndexError LookupError StopIteration KeyError Exception BaseException")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Key = tuple[int, str]


class Use(NamedTuple):
    """The table's name, and the line that takes from it."""

    name: str
    line: int


@functools.lru_cache(64)
def taken_to_its_end(file: str | None, line: int) -> Use | None:
    """The table that ``file`` makes of the ``len()`` in ``line``, where it is certain that its end is not minded."""
    if file is None:
        return None
    try:
        with open(file, "rb") as script:
            source = script.read(LARGEST + 1)
        return None if len(source) > LARGEST else _Reading(ast.parse(source), line).use()
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Reading:
    """One script, read for one line."""

    def __init__(self, tree: ast.Module, line: int) -> None:
        self._line = line
        self._parents: dict[ast.AST, ast.AST] = {}
        self._bound: dict[ast.AST, set[str]] = {}
        self._outer: dict[ast.AST, set[str]] = {}
        self._kinds: dict[Key, str] = {}
        self._functions: dict[str, Any] = {}
        self._nodes = list(ast.walk(tree))
        for node in self._nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
        for node in self._nodes:
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self._outer.setdefault(self._scope(node), set()).update(node.names)
        for node in self._nodes:
            self._bind(node)

    def use(self) -> Use | None:
        """The first that is found."""
        for _ in range(ROUNDS):
            before = dict(self._kinds)
            self._learn()
            if self._kinds == before:
                break
        self._counters = {key for node in self._nodes for key in self._counted(node)}
        for node in self._nodes:
            table = self._taken(node)
            if table is not None and not self._minded(node):
                return Use(ast.unparse(table)[:40], getattr(node, "lineno", 0))
        return None

    # ---- names ----

    def _scope(self, node: ast.AST) -> ast.AST:
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, _SCOPES):
                break
        return node

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, _FUNCTIONS):
            self._functions[node.name] = None if node.name in self._functions else node
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, _FUNCTIONS) and part.name == "__init__":
                    self._functions[node.name] = part
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            scope = self._scope(node)
            if node.id not in self._outer.get(scope, ()):
                self._bound.setdefault(scope, set()).add(node.id)
        if isinstance(node, ast.arg):
            self._bound.setdefault(self._scope(node), set()).add(node.arg)

    def _key(self, node: ast.AST, name: str | None = None) -> Key | None:
        """By the scope that binds it; an attribute by its name alone."""
        if isinstance(node, ast.Attribute):
            return (0, node.attr)
        if name is None and not isinstance(node, ast.Name):
            return None
        name = name or node.id  # type: ignore[attr-defined]
        scope: ast.AST = self._scope(node)
        while name not in self._bound.get(scope, ()) and scope in self._parents:
            scope = self._scope(scope)
        return (id(scope), name)

    def _counted(self, node: ast.AST) -> Iterator[Key]:
        """Names whose value goes up with the steps: ``n += 1``, enumerate's, and what a function is handed."""
        found: list[ast.expr] = []
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            found = [node.target]
        elif isinstance(node, ast.For) and _called(node.iter) == "enumerate" and isinstance(node.target, ast.Tuple):
            within = node.iter.args[0]  # type: ignore[attr-defined]
            if _called(within) not in LISTS and not isinstance(within, ast.List) and self._kind(within) is None:
                found = node.target.elts[:1]
        elif isinstance(node, ast.arguments):
            inside = self._parents[node]
            if not isinstance(self._parents[inside], ast.keyword):  # key=lambda …
                yield from ((id(inside), part.arg) for part in node.args if part.arg != "self")
        yield from (key for part in found if (key := self._key(part)) is not None)

    # ---- what they hold ----

    def _learn(self) -> None:
        """One round over all that is assigned: a name counts where all that it is given does."""
        given: dict[Key, list[str | None]] = {}
        for node in self._nodes:
            for key, kind in self._given(node):
                given.setdefault(key, []).append(kind)
        for key, kinds in given.items():
            known = [kind for kind in kinds if kind is not None]
            if known and len(known) == len(kinds):
                self._kinds[key] = TABLE if TABLE in known else SIZE

    def _given(self, node: ast.AST) -> Iterator[tuple[Key, str | None]]:
        pairs: list[tuple[ast.AST, ast.AST | None]] = []
        if isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, (ast.For, ast.comprehension)):
            pairs = [(part, None) for part in ast.walk(node.target)]
            if isinstance(node, ast.For) and self._kind(node.iter) == TABLE:
                within = (part for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == "append")
                yield from ((key, TABLE) for part in within if (key := self._key(part.value)) is not None)
        elif isinstance(node, ast.Call):
            yield from self._handed(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            inside = self._scope(node)
            if isinstance(inside, _FUNCTIONS):
                yield (-1, inside.name), self._kind(node.value)
        for target, value in pairs:
            key = self._key(target)
            if key is not None and not _nothing(value):
                yield key, None if value is None else self._kind(value)

    def _handed(self, call: ast.Call) -> Iterator[tuple[Key, str | None]]:
        """What a function of the script gets."""
        function = self._functions.get(_called(call) or "")
        if function is None:
            return
        names = [part.arg for part in function.args.args]
        names = names[1:] if names[:1] == ["self"] else names
        pairs = [*zip(names, call.args), *((part.arg, part.value) for part in call.keywords)]
        for name, value in pairs:
            kind = self._kind(value)
            if name in names and kind is not None:
                yield (id(function), name), kind

    def _kind(self, node: ast.AST) -> str | None:
        if isinstance(node, (ast.Name, ast.Attribute)):
            key = self._key(node)
            return self._kinds.get(key) if key is not None else None
        if isinstance(node, ast.BinOp):
            return self._worked_out(node)
        if isinstance(node, ast.UnaryOp):
            return self._kind(node.operand)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            first = node.generators[0]
            return TABLE if not first.ifs and self._kind(first.iter) == TABLE else None
        if isinstance(node, ast.Subscript):
            return TABLE if isinstance(node.slice, ast.Slice) and self._kind(node.value) == TABLE else None
        return self._made(node) if isinstance(node, ast.Call) else None

    def _worked_out(self, node: ast.BinOp) -> str | None:
        left, right = self._kind(node.left), self._kind(node.right)
        if TABLE in (left, right):
            return TABLE
        if isinstance(node.op, ast.Mult) and SIZE in (left, right):
            return TABLE if isinstance(node.left, ast.List) or isinstance(node.right, ast.List) else SIZE
        return left or (right if isinstance(node.op, (ast.Add, ast.Sub)) else None)

    def _made(self, call: ast.Call) -> str | None:
        name = _called(call)
        parts = [part for arg in call.args for part in (arg.elts if isinstance(arg, (ast.Tuple, ast.List)) else [arg])]
        kinds = [self._kind(part) for part in (*parts, *(part.value for part in call.keywords))]
        if name == "len":
            asked = call.lineno <= self._line <= (call.end_lineno or call.lineno)
            return SIZE if asked or TABLE in kinds else None
        if name in NUMBERS and SIZE in kinds and TABLE not in kinds:
            return SIZE
        if name in MAKERS and SIZE in kinds:
            return TABLE
        if name in KEEPERS:
            own = [self._kind(call.func.value)] if isinstance(call.func, ast.Attribute) else []
            return TABLE if TABLE in [*own, *kinds] else None
        return self._kinds.get((-1, name or ""))

    # ---- what is taken from them ----

    def _taken(self, node: ast.AST) -> ast.AST | None:
        """The table that this takes one thing from by a count of steps, or None."""
        if isinstance(node, ast.Subscript) and self._kind(node.value) == TABLE:
            return node.value if self._counts(node.slice) else None
        if not isinstance(node, ast.Call) or not self._in_a_loop(node):
            return None
        table: ast.AST | None = None
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("pop", "popleft"):
            table = node.func.value
        elif _called(node) == "next" and len(node.args) == 1:
            table = node.args[0]
        return table if table is not None and self._kind(table) == TABLE else None

    def _counts(self, index: ast.AST) -> bool:
        parts = list(ast.walk(index))
        if any(isinstance(part, (ast.Slice, ast.Mod)) or _called(part) in BOUND for part in parts):
            return False
        return any(self._key(part) in self._counters for part in parts if isinstance(part, (ast.Name, ast.Attribute)))

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            node = self._parents[node]
            yield node

    def _in_a_loop(self, node: ast.AST) -> bool:
        return any(isinstance(part, ast.For) and self._kind(part.iter) is None for part in self._above(node))

    def _minded(self, node: ast.AST) -> bool:
        """Whether something around it asks for the end first, or catches what happens there."""
        for part in self._above(node):
            if isinstance(part, (ast.If, ast.IfExp, ast.While)):
                if any(self._kind(word) is not None for word in ast.walk(part.test)):
                    return True
            elif isinstance(part, ast.Try):
                kinds = [handler.type for handler in part.handlers]
                words = [word for kind in kinds if kind is not None for word in ast.walk(kind)]
                if None in kinds or any(getattr(word, "id", "") in CAUGHT for word in words):
                    return True
        return False


def _called(node: ast.AST) -> str | None:
    """The last name of what a call calls."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def _nothing(value: ast.AST | None) -> bool:
    """What a name may be given before it gets its table."""
    return isinstance(value, ast.AST) and ast.unparse(value) in ("[]", "None", "list()", "deque()")


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """What is assigned to what; None: nobody can tell."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
    elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        for one, other in zip(target.elts, value.elts):
            yield from _pairs(one, other)
    else:
        yield from ((part, None) for part in target.elts)

"""Whether the script could begin again: its files as they lie on the disk now, which a new process would run.

A script that was edited runs as it is then; one that is half edited, or gone, ends there, and the way back is the same
script. So the process that waits reads them first (``Script``), and who hands over makes sure that it has read what
lies there. Nothing of the script is imported or run, and it must never hold a restart up for a file that the new
process would not come to.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from . import lives
from .guard import attempt

BEGAN_S = time.time()
"""What was changed before has been read as it is."""
LOOKED = "looked.json"
LONGEST = 2000
NOT_OWN = ("site-packages", "dist-packages")
CLOCKS_S = 2.0
"""So much the clock of a file server may be behind."""
SUFFIX = ".py"
OURS = ("cockpit", __name__.partition(".")[0])
LIBRARY = os.path.dirname(os.__file__) + os.sep


NOT_READ = getattr(importlib.util, "_LazyModule", None)
"""What runs when somebody looks at it for the first time."""


def of_this_process() -> dict[str, Any]:
    """``main``: the script; ``files``: what it has imported of its own, by path with the name of the module;
    ``python``: which one reads them; ``since_s``: when it had not read them yet."""
    main = _fields(sys.modules.get("__main__"))
    path, spec = main.get("__file__"), main.get("__spec__")
    path = os.path.abspath(path) if isinstance(path, str) and os.path.isfile(path) else None
    files = {} if path is None else {path: str(getattr(spec, "name", "__main__"))}
    for name, module in list(sys.modules.items()):
        if len(files) < LONGEST and (found := _own_file(name, module)) is not None:
            files.setdefault(found, name)
    python, since_s = list(sys.version_info[:2]), BEGAN_S - CLOCKS_S
    return {"main": path, "files": files, "python": python, "since_s": since_s}


def _fields(module: Any) -> Mapping[str, Any]:
    """What it holds, looked at past whatever it would do when somebody asks it: import all it has, say. Nothing of what
    is no module, or has not been read yet."""
    kind = type(module)
    if not issubclass(kind, ModuleType) or kind is NOT_READ:
        return {}
    return vars(ModuleType)["__dict__"].__get__(module) or {}


def _own_file(name: str, module: Any) -> str | None:
    """What was made up without a finder is none: whoever compiles writes such modules, and takes them away again."""
    fields = _fields(module)
    path, spec = fields.get("__file__"), fields.get("__spec__")
    if spec is None or not isinstance(path, str) or not path.endswith(SUFFIX) or name.partition(".")[0] in OURS:
        return None
    path = os.path.abspath(path)
    is_library = path.startswith(LIBRARY) or any(os.sep + each + os.sep in path for each in NOT_OWN)
    return None if is_library else path


def changed_since_looked(life: str) -> str | None:
    """What is not as the process that waits in ``life`` has read it, in a sentence; None where all is."""
    for path, stamp in (lives.read(life, LOOKED).get("files") or {}).items():
        if _stamp(path) != stamp:
            return "%s has just been changed, and the new process has not looked at it yet: ask once more" % path
    return None


class Script:
    """The files of the process before, as ``told`` by it, looked at from a new one's ``folder``."""

    def __init__(self, folder: str, told: Mapping[str, Any]) -> None:
        self._folder = folder
        self._main = told.get("main")
        self._files: dict[str, str] = dict(told.get("files") or {})
        self._since_s = float(told.get("since_s") or 0.0)
        self._reads = told.get("python") == list(sys.version_info[:2])
        self._seen: dict[str, Any] = {}
        self._why: str | None = None

    def why_not(self) -> str | None:
        """Look at what has changed since the last look: why the script would end before it trains, or None."""
        stamps = {path: _stamp(path) for path in self._files}
        if stamps == self._seen:
            return self._why
        before, self._seen = self._seen, stamps
        faults = (self._fault(path, before) for path in self._files)
        self._why = next((why for why in faults if why is not None), None)
        if self._why is None:
            with contextlib.suppress(OSError):
                lives.put(self._folder, LOOKED, {"files": stamps})
        return self._why

    def _fault(self, path: str, before: Mapping[str, Any]) -> str | None:
        stamp, name = self._seen[path], self._files[path]
        if stamp == before.get(path, False):
            return None
        if stamp is None:
            return "%s is gone" % path if path == self._main else self._missed(path, name)
        changed = path in before or path == self._main or stamp[0] / 1e9 > self._since_s
        return _no_python(path) if changed and self._reads else None

    def _missed(self, path: str, name: str) -> str | None:
        """Who imports the module that is gone, where anybody does."""
        folder, file = os.path.split(path)
        stem = os.path.basename(folder) if file == "__init__.py" else file[: -len(SUFFIX)]
        around, _ = attempt(os.listdir, os.path.dirname(folder) if file == "__init__.py" else folder)
        if any(each.partition(".")[0] == stem for each in around or ()):
            return None  # a folder or another kind of module has taken its place
        if "." not in name and attempt(importlib.machinery.PathFinder.find_spec, name)[0] is not None:
            return None  # it has moved
        for other, importer in self._files.items():
            line = _imports(other, importer, name)
            if line is not None:
                return "%s, line %d imports %s, and %s is gone" % (other, line, name, path)
        return None


def _stamp(path: str) -> Any:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return [facts.st_mtime_ns, facts.st_size]


def _no_python(path: str) -> str | None:
    """What Python has against it."""
    _, error = attempt(compiled, path)
    if error is None or isinstance(error, OSError):
        return None  # who cannot read it now may be able to then
    line = getattr(error, "lineno", None)
    where = "%s, line %d" % (path, line) if line else path
    return "%s: %s: %s" % (where, type(error).__name__, getattr(error, "msg", None) or error)


def compiled(path: str, flags: int = 0) -> Any:
    """What Python makes of the file; it has said already what it warns of. Raises what Python raises."""
    with open(path, "rb") as file:
        text = file.read()
    if not path.endswith(SUFFIX) and b"\0" in text:
        return None  # a script that was compiled before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, path, "exec", flags, True)


def _imports(path: str, importer: str, name: str) -> int | None:
    """The line at the top of ``path`` that imports the module ``name`` and cannot do without."""
    tree, _ = attempt(compiled, path, ast.PyCF_ONLY_AST)
    for node in getattr(tree, "body", ()):
        if any(each == name or each.startswith(name + ".") for each in _named(node, path, importer)):
            return int(node.lineno)
    return None


def _named(node: Any, path: str, importer: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = node.module or ""
        if node.level:
            package = importer if os.path.basename(path) == "__init__.py" else importer.rpartition(".")[0]
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            start = ".".join([*up, *([node.module] if node.module else [])])
        yield start
        yield from ("%s.%s" % (start, alias.name) for alias in node.names)

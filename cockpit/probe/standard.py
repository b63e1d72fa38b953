"""Modules of Python's own that the probe needs and torch does not import: taken without being seen, and never another.

A script's folder stands first in ``sys.path``. An ``import resource`` of ours would run a ``resource.py`` that lies
there, before its time, or put Python's own in the place where the script then looks for its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from typing import Any

LIBRARY = os.path.dirname(os.__file__)
FOLDERS = [LIBRARY, os.path.join(LIBRARY, "lib-dynload")]


def standard(name: str) -> Any:
    """The module, as Python has it; ``sys.modules`` stays as it was. Raises ImportError."""
    known = sys.modules.get(name)
    spec = PathFinder.find_spec(name, FOLDERS)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)  # built in, or kept elsewhere
    if known is not None and getattr(getattr(known, "__spec__", None), "origin", None) == spec.origin:
        return known
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop(name, None)  # a module of the old kind puts itself there
        if known is not None:
            sys.modules[name] = known
    return module

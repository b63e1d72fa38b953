"""Keeps workers that the script has not asked for out of what it sees as its own children.

A script that waits for all its children (``for p in active_children(): p.join()``) would wait for persistent workers
for ever. Called by the chain for each source that it builds. They are shown again at the end of the process, so that
multiprocessing ends them as it ends all others.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing import process, util
from typing import Any

_hidden: weakref.WeakSet[Any] = weakref.WeakSet()
_registered: list[int] = []


def hide(source: Any) -> None:
    """The workers of ``source``, but where they run under the script's own settings."""
    children = getattr(process, "_children", None)
    if getattr(source, "gate", None) is None or not isinstance(children, set):
        return
    for ended in [worker for worker in list(_hidden) if worker._parent_pid == os.getpid()]:
        ended.is_alive()  # reaps it, which multiprocessing does for those it sees
    workers = getattr(source, "_workers", ())
    children.difference_update(workers)
    _hidden.update(workers)
    if os.getpid() not in _registered:
        _registered[:] = [os.getpid()]
        util.Finalize(None, show, exitpriority=100)  # before multiprocessing ends its children, in ranks too


def show() -> None:
    """Those that still live are multiprocessing's to end."""
    mine = [worker for worker in list(_hidden) if worker._parent_pid == os.getpid() and worker.is_alive()]
    process._children.update(mine)  # type: ignore[attr-defined]

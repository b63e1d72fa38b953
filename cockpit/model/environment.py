"""Variables of a process's environment that can be asked for: which are worth trying, which cannot work, what is shown.

Read by the engine, the screen, the command line and the setup's file. Of an environment only what people gave is ever
shown or saved, and what the table below says is no secret: whatever else stands in it may be one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .errors import UsageError

AS_BEGAN = "(as it began)"
"""Stands for a value that nobody gave: the run began with it, and it is told to nobody."""

OTHER_HASHES = "a set of strings has another order in the new process: PYTHONHASHSEED is not fixed"
"""What may make a training go on wrongly without a word, and nothing can carry over."""


PYTHON, TORCH = "Python", "torch"


@dataclass(frozen=True)
class Variable:
    """One that is worth trying. ``by``: what must not have started yet when it is set. ``like``: values of it."""

    name: str
    help: str
    like: tuple[str, ...]
    by: str = TORCH


VARIABLES: tuple[Variable, ...] = (
    Variable("OMP_NUM_THREADS", "CPU threads of one operation, in every library that uses OpenMP", ("1", "2", "4")),
    Variable("MKL_NUM_THREADS", "CPU threads of MKL; there it wins over OMP_NUM_THREADS", ("1", "2", "4")),
    Variable("OMP_PROC_BIND", "whether threads stay on their core", ("true", "close", "spread")),
    Variable(
        "PYTORCH_ALLOC_CONF",
        "torch's allocator on the GPU, where memory is there and too broken up to be used",
        ("expandable_segments:True", "max_split_size_mb:128", "garbage_collection_threshold:0.8"),
    ),
    Variable("THP_MEM_ALLOC_ENABLE", "huge pages for tensors on the CPU", ("1",)),
    Variable("MALLOC_ARENA_MAX", "memory pools of the C library; fewer of them hold less", ("1", "2"), PYTHON),
    Variable(
        "LD_PRELOAD", "another allocator of the C library, such as jemalloc or tcmalloc", ("libjemalloc.so.2",), PYTHON
    ),
)
BY_NAME: Mapping[str, Variable] = {variable.name: variable for variable in VARIABLES}

PLAIN = frozenset((*BY_NAME, "PYTORCH_CUDA_ALLOC_CONF", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"))
"""Their values may be shown and written down, whoever gave them."""
BEFORE_PYTHON = ("LD_", "MALLOC_", "GLIBC_", "PYTHON", "LC_", "LANG", "TZ")
"""Beginnings of names that are read before a script has its first line."""

HOLDS_MOST = 100_000
"""Bytes of one value: the kernel takes 128 KiB for a variable and no more."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = ("PYTHONUNBUFFERED",)


def check_variable(name: str, value: str | None) -> None:
    """Raises UsageError for a name or value that no process can be started with, or that is not a person's to choose.

    None as a value takes the variable away.
    """
    if not _NAME.fullmatch(name):
        raise UsageError("%r is no name of an environment variable" % name)
    if name.startswith("COCKPIT_") or name in _OWN:
        raise UsageError("%s is cockpit's own: it cannot be changed" % name)
    if value is None:
        return
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise UsageError("%s cannot hold that value: it is no text" % name) from None
    if "\0" in value or size > HOLDS_MOST:
        raise UsageError("%s cannot hold that value" % name)


def must_come_first(name: str) -> bool:
    """Whether a script cannot set it for itself: it is read before the script's first line."""
    known = BY_NAME.get(name)
    return known.by == PYTHON if known is not None else name.startswith(BEFORE_PYTHON)


def goes_along(names: Iterable[object]) -> str:
    """What a new process has: the things that were given, by ``names``, and what goes with them; and what it has not,
    objects and plain names of the script's, of which nobody can list all."""
    return "%s go along; what was not given begins anew" % ", ".join([*map(str, names), "random states"])

"""What torch finds in the moment it is imported, told by each training, and where a process that waits differs from it.

A hot restart imports torch before the script begins. That is right only where torch would find then what it found when
the script itself imported it: libraries count the processors as they are loaded, and the first OpenMP stays the one in
use. Called by ``install`` and ``warm``; it must change nothing and import nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

LIMITS = ("Max address space", "Max data size", "Max processes", "Max stack size")
"""Those that decide what threads and memory a library gets as it is loaded; files may be opened later."""
LIBRARIES = ("gomp", "iomp", "libomp", "mkl", "malloc", "tbb")
"""In names of libraries of which the one that is loaded first is the one that all use."""
OF_STATUS = {"Cpus_allowed_list": "processors", "Mems_allowed_list": "memory nodes"}
OF_STAT = (16, 37, 38)
"""Niceness, real-time priority and policy, counted from behind the program's name."""
TO_BE_ALIKE = ("processors", "memory nodes", "limits", "priority", "dlopen flags")
FROM_OUTSIDE = {"libraries": "env LD_", "torch": "env PYTHON"}
"""What variables decide as well: where one of them was asked for, the difference is what was wanted."""


def greeting(told: Any, environ: Any, torch: Any, standing: Mapping[str, bytes] | None) -> dict[str, Any]:
    """What a process says of how it began: what it changed in its environment by itself, what is there of what was
    asked for, and what torch found."""
    return {
        "set_early": _set_before_torch(environ),
        "env": {name: environ.get(name) for name in told.get("env") or ()},
        "found": {} if standing is None else found(standing, getattr(torch, "__file__", None)),
    }


def _set_before_torch(environ: Any) -> list[str]:
    """Names that the process has changed in its environment by the time torch is imported: what it read then, a
    process that imports torch beforehand would not have."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair]
    except OSError:
        return []
    began = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    if not began:
        return []
    ours = ("COCKPIT_", "LC_CTYPE")  # Python sets the second itself
    names = {name for name in {*began, *environ} if began.get(name) != environ.get(name)}
    return sorted(name for name in names if not name.startswith(ours))


def found(standing: Mapping[str, bytes], torch: str | None) -> dict[str, Any]:
    """As plain values; ``standing`` holds some of /proc/self by name, and ``dlopen``; ``torch`` is its file. What
    cannot be read is left out."""
    lines = {name: text.decode("utf-8", "replace").splitlines() for name, text in standing.items()}
    told: dict[str, Any] = {"torch": torch and os.path.realpath(torch)}
    for line in lines.get("status", ()):
        name, _, value = line.partition(":")
        if name in OF_STATUS:
            told[OF_STATUS[name]] = value.strip()
    if lines.get("limits"):
        limits = [line for line in lines["limits"] if line.startswith(LIMITS)]
        told["limits"] = sorted(" ".join(line.split()) for line in limits)
    if lines.get("stat"):
        fields = lines["stat"][0].rpartition(")")[2].split()
        told["priority"] = [fields[at] for at in OF_STAT]
    if lines.get("dlopen"):
        told["dlopen flags"] = lines["dlopen"][0]
    if lines.get("maps"):
        names = {os.path.basename(line.split(None, 5)[5]) for line in lines["maps"] if line.count("/")}
        told["libraries"] = sorted(name for name in names if any(part in name for part in LIBRARIES))
    return told


def unlike(told: Mapping[str, Any], mine: Mapping[str, Any], asked: Collection[str]) -> list[str]:
    """Why torch must be left to the script: where ``mine``, before it begins, is not what the process of before
    ``told``. ``asked``: what the restart changes, as the ledger has it."""
    why = [f"torch found other {name} before" for name in TO_BE_ALIKE if name in told and told[name] != mine.get(name)]
    wanted = {name for name, begins in FROM_OUTSIDE.items() if any(key.startswith(begins) for key in asked)}
    if "libraries" not in wanted:
        loaded = sorted(set(told.get("libraries") or ()) - set(mine.get("libraries") or ()))
        why += [f"torch found {name} loaded before" for name in loaded]
    if "torch" not in wanted and told.get("torch") and told["torch"] != mine.get("torch"):
        why.append("torch was found elsewhere before")
    return why

"""How much memory the training may still take: what the machine has, and what each control group of its job leaves.

Asked by ``preflight`` and by whoever copies something large, in any thread; by the engine before it starts a second
process beside the training. A limit holds for everything below it, so the walk goes from the process's own group up to
what is mounted, and the least counts; page cache that the kernel gives up by itself is free. Must never guess: where
nobody tells, there is no figure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

FILES: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "cgroup2": (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    "cgroup": (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
}
"""By version: limits, what is taken, and the line of ``memory.stat`` that tells what of it can be given up."""
ESCAPED = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


def memory_left(pid: int | None = None, root: str = "/") -> int | None:
    """Bytes; None where neither the machine nor a group tells. ``root`` is where ``/proc`` and ``/sys`` are."""
    pid = os.getpid() if pid is None else pid
    available = fields(os.path.join(root, "proc/meminfo")).get("MemAvailable:")
    left = [None if available is None else available * 1024]
    left += [_of_group(folder, kind) for folder, kind in groups(pid, root)]
    return min((found for found in left if found is not None), default=None)


@lru_cache(maxsize=8)
def groups(pid: int, root: str) -> tuple[tuple[str, str], ...]:
    """Folders of the process's groups and of those above, as far as our mounts show them; once, since jobs stay."""
    own: dict[str, str] = {}
    for line in lines(os.path.join(root, "proc", str(pid), "cgroup")):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            own["cgroup2"] = path
        elif "memory" in controllers.split(","):
            own["cgroup"] = path
    found = []
    for line in lines(os.path.join(root, "proc/self/mountinfo")):
        front, _, back = line.partition(" - ")
        place, kind = front.split(), back.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in own:
            continue
        if kind[0] == "cgroup2" or "memory" in kind[2].split(","):
            found += [(folder, kind[0]) for folder in _upwards(own[kind[0]], _plain(place[3]), _plain(place[4]), root)]
    return tuple(found)


def _upwards(group: str, shows: str, at: str, root: str) -> list[str]:
    """None where the mount shows another branch: a process outside our namespace reads ``/../other``."""
    parts, top = group.strip("/").split("/"), shows.strip("/").split("/")
    parts, top = [part for part in parts if part], [part for part in top if part]
    if ".." in parts or parts[: len(top)] != top:
        return []
    folder, below = os.path.join(root, at.lstrip("/")), parts[len(top) :]
    return [os.path.join(folder, *below[:depth]) for depth in range(len(below), -1, -1)]


def _of_group(folder: str, kind: str) -> int | None:
    limits, taken, reclaimable = FILES[kind]
    most = min((found for name in limits if (found := _number(os.path.join(folder, name))) is not None), default=None)
    used = _number(os.path.join(folder, taken))
    if most is None or used is None:
        return None
    return max(0, most - used + fields(os.path.join(folder, "memory.stat")).get(reclaimable, 0))


def lines(path: str) -> list[str]:
    """Of a file of the kernel's; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # loaded in every Python
            return file.read().splitlines()
    except OSError:
        return []


def fields(path: str) -> Mapping[str, int]:
    """The first number of each line by the line's first word."""
    words = [line.split() for line in lines(path)]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _number(path: str) -> int | None:
    text = "".join(lines(path)).strip()
    return int(text) if text.isdigit() else None  # "max": there is no limit


def _plain(path: str) -> str:
    for code, char in ESCAPED:
        path = path.replace(code, char)
    return path

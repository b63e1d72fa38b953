"""How much memory one more process beside the training may take: what the machine has, and its control groups leave.

Called by the engine before it starts the process of a hot restart. What the kernel gives up by itself (page cache) is
counted as free. Must never guess: where nobody tells, there is no figure.
"""

from __future__ import annotations

from pathlib import Path

from cockpit.sensors.cgroup import find_groups, find_mounts, walk_up
from cockpit.sensors.procfs import read_text

FILES = {
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
}
"""By version: limits, what is taken, and the line of ``memory.stat`` that tells what of it can be given up."""


def free_bytes(pid: int, root: Path = Path("/")) -> int | None:
    """The least of what the machine and each group of ``pid`` have left; None where neither tells."""
    left = [_of_machine(root)]
    groups = find_groups(pid, root, "memory")
    for mount in find_mounts(root, "memory"):
        if mount.version in groups:
            left += [_of_group(folder, mount.version) for folder in walk_up(mount, groups[mount.version], root)]
    return min((found for found in left if found is not None), default=None)


def _of_machine(root: Path) -> int | None:
    return _stat(read_text(root / "proc" / "meminfo"), "MemAvailable:", 1024)


def _of_group(folder: Path, version: int) -> int | None:
    limits, taken, reclaimable = FILES[version]
    least = min((found for name in limits if (found := _number(folder / name)) is not None), default=None)
    used = _number(folder / taken)
    if least is None or used is None:
        return None
    return max(0, least - used + (_stat(read_text(folder / "memory.stat"), reclaimable) or 0))


def _number(path: Path) -> int | None:
    text = (read_text(path) or "").strip()
    return int(text) if text.isdigit() else None


def _stat(text: str | None, name: str, unit: int = 1) -> int | None:
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1]) * unit
    return None

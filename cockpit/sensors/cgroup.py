"""The CPU quota that control groups put on a process, v1 and v2, for ``limits``.

A quota holds for everything below it, so the walk goes from the process's own group up to the mount, and the
smallest wins. Must never guess: a group that our mounts do not show gives no quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cockpit.sensors.procfs import read_text


@dataclass(frozen=True)
class Mount:
    """One mounted control group hierarchy. ``shows`` is the group that stands at ``at`` (``/`` = the topmost)."""

    version: int
    shows: PurePosixPath
    at: PurePosixPath


def quota_cpus(pid: int, root: Path = Path("/")) -> float | None:
    """The smallest CPU quota on ``pid`` in CPUs, or None where there is none (or none to be seen)."""
    mounts = tuple(find_mounts(root))
    groups = find_groups(pid, root)
    quotas = [
        quota
        for mount in mounts
        if mount.version in groups
        for folder in walk_up(mount, groups[mount.version], root)
        if (quota := READ_QUOTA[mount.version](folder)) is not None
    ]
    return min(quotas, default=None)


def find_groups(pid: int, root: Path) -> dict[int, PurePosixPath]:
    """The process's group in the v2 hierarchy and in the v1 cpu hierarchy, by version."""
    groups: dict[int, PurePosixPath] = {}
    for line in (read_text(root / "proc" / str(pid) / "cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[2] = PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            groups[1] = PurePosixPath(path)
    return groups


def find_mounts(root: Path) -> Iterator[Mount]:
    """Mounts of the v2 hierarchy and of the v1 cpu controller, from ``/proc/self/mountinfo``."""
    for line in (read_text(root / "proc" / "self" / "mountinfo") or "").splitlines():
        front, _, back = line.partition(" - ")
        place, kind = front.split(), back.split()
        if len(place) < 5 or len(kind) < 3:
            continue
        shows, at = (PurePosixPath(unescape(path)) for path in place[3:5])
        if kind[0] == "cgroup2":
            yield Mount(2, shows, at)
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            yield Mount(1, shows, at)


def walk_up(mount: Mount, group: PurePosixPath, root: Path) -> Iterator[Path]:
    """Folders of ``group`` and of all groups above it that the mount shows; none where it shows another branch."""
    # a process outside our own control group namespace reads "/../other", which our mount does not hold
    if ".." in group.parts or not group.is_relative_to(mount.shows):
        return
    top = root / mount.at.relative_to("/")
    below = group.relative_to(mount.shows)
    yield top / below
    for parent in below.parents:
        if top / parent != top / below:
            yield top / parent


def read_quota_v2(folder: Path) -> float | None:
    """``cpu.max`` holds ``max 100000`` or ``150000 100000``; the topmost group has no such file."""
    quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
    return divide(quota, period or "100000")


def read_quota_v1(folder: Path) -> float | None:
    """Microseconds per period in two files; a quota of -1 means none."""
    return divide(read_text(folder / "cpu.cfs_quota_us") or "", read_text(folder / "cpu.cfs_period_us") or "100000")


READ_QUOTA = {1: read_quota_v1, 2: read_quota_v2}


def divide(quota: str, period: str) -> float | None:
    """CPUs from the two numbers, None where the quota says "none" or either is not a positive number."""
    try:
        cpus = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def unescape(path: str) -> str:
    """Mount tables write blank, tab, line end and backslash in paths as octal (``\\040``)."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, char)
    return path

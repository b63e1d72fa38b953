"""The few lines of ``/proc`` that we read, parsed; used by the other sensors, with any folder as ``/proc``.

Processes vanish at any moment and other users' files are closed to us: every function here answers None then,
and none of them raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stat:
    """``/proc/PID/stat``: CPU in clock ticks; ``ended_ticks`` is that of children the process has waited for.

    ``started_ticks`` (since boot) tells two processes with the same pid apart.
    """

    pid: int
    name: str
    parent: int
    started_ticks: int
    own_ticks: int
    ended_ticks: int


def read_bytes(path: Path | str) -> bytes | None:
    """The whole file, or None where it is gone or closed to us."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def read_text(path: Path | str) -> str | None:
    """The whole file as text (undecodable bytes escaped), or None where it is gone or closed to us."""
    found = read_bytes(path)
    return None if found is None else found.decode("utf-8", "surrogateescape")


def read_stat(proc: Path, pid: int) -> Stat | None:
    """Times and parent of one process, or None if it is gone."""
    text = read_text(f"{proc}/{pid}/stat")
    if not text:
        return None
    # the name stands in brackets and may itself hold spaces and brackets: the last one closes it
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    try:
        user, system, ended_user, ended_system = (int(field) for field in fields[11:15])
        return Stat(
            pid=pid,
            name=head.partition("(")[2],
            parent=int(fields[1]),
            started_ticks=int(fields[19]),
            own_ticks=user + system,
            ended_ticks=ended_user + ended_system,
        )
    except (ValueError, IndexError):
        return None


def read_schedstat(proc: Path, pid: int) -> tuple[int, int] | None:
    """Nanoseconds that the process's first thread has (run, waited for a CPU while it could run)."""
    fields = (read_text(f"{proc}/{pid}/schedstat") or "").split()
    try:
        return int(fields[0]), int(fields[1])
    except (ValueError, IndexError):
        return None


def has_mark(proc: Path, pid: int, mark: bytes) -> bool:
    """Whether ``mark`` (``NAME=value``) is one of the variables the process was started with."""
    return mark in (read_bytes(f"{proc}/{pid}/environ") or b"").split(b"\0")


def has_title(proc: Path, pid: int) -> bool:
    """Whether a title of its own has been written over the variables it was started with, so that none can be read."""
    found = read_bytes(f"{proc}/{pid}/environ")
    return bool(found) and b"=" not in found  # type: ignore[operator]


def list_pids(proc: Path) -> Iterator[int]:
    """All processes that ``/proc`` shows now."""
    try:
        names = os.listdir(proc)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """``0-3,8`` → (0, 1, 2, 3, 8); an empty or broken list gives ()."""
    cores: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        try:
            cores.extend(range(int(first), int(last or first) + 1))
        except ValueError:
            return ()
    return tuple(cores)

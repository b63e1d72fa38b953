"""Which processes belong to a run, whether they live, and signals to them. Used by the engine and by listings.

A process belongs to a run if it bears the run's mark in its environment, whoever its parent is by now; where a title
was written over that, if it descends from the run's keeper. Nothing else is ever signalled: each is looked at again,
through a handle that cannot mean a later process, right before.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cockpit.model.names import ENV_RUN
from cockpit.probe import handles, lives
from cockpit.sensors.procfs import has_mark, has_title, list_pids, read_stat, read_text
from cockpit.sensors.tree import WORKER_NAME

from .rundir import RunDir, read_json

PROC = Path("/proc")
DEEPEST = 64
"""So many parents are asked at most: pids may be handed out anew between two looks."""


@dataclass(frozen=True)
class Process:
    """One living process of a run. ``is_worker``: a loader worker, which may be reaped after a normal end."""

    pid: int
    name: str
    is_worker: bool
    started_ticks: int | None = None


@dataclass(frozen=True)
class Pids:
    """The keeper's and the training's pid, with their start times (ticks since boot) to know them by.

    ``back``: how the process of a hot restart ended before its first step, where this one runs in its place.
    """

    keeper: int
    training: int
    keeper_started: int | None = None
    training_started: int | None = None
    back: int | str | None = None


def read_pids(run: RunDir) -> Pids | None:
    """What the keeper of the present life wrote when the training began; None before."""
    return pids_in(run.pids)


def pids_in(file: Path) -> Pids | None:
    """What a keeper wrote into ``file``."""
    found = read_json(file)
    try:
        return Pids(
            int(found["keeper"]),
            int(found["training"]),
            found.get("keeper_started"),
            found.get("training_started"),
            found.get("back"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def all_pids(run: RunDir) -> tuple[Pids, ...]:
    """Of every life: a process may outlive its own, or wait for the next."""
    folders = [run.data, *(Path(folder) for _, folder in lives.folders(str(run.data)))]
    return tuple(pids for folder in folders if (pids := pids_in(folder / lives.PIDS)) is not None)


def read_exit(run: RunDir) -> tuple[int, str | None] | None:
    """(status, reason or None) as the keeper left it; None while the training runs."""
    return exit_in(run.exit_status)


def exit_in(file: Path) -> tuple[int, str | None] | None:
    """The same, of whichever life ``file`` belongs to."""
    text = read_text(file)
    first, _, reason = (text or "").partition("\n")
    try:
        return int(first), reason.strip() or None
    except ValueError:
        return None


def is_alive(pid: int, started_ticks: int | None) -> bool:
    """Whether that very process still runs; one that waits to be reaped does not."""
    stat = read_stat(PROC, pid)
    if stat is None or (started_ticks is not None and stat.started_ticks != started_ticks):
        return False
    state = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()[:1]
    return state not in ([], ["Z"], ["X"])


def mark_of(run: RunDir) -> str:
    """``NAME=value`` as it stands in the environment of every process of the run."""
    return f"{ENV_RUN}={run.data}"


def marked(
    run: RunDir, workers: Iterable[int] = (), met: Mapping[int, int | None] = MappingProxyType({})
) -> tuple[Process, ...]:
    """Every living process that bears the run's mark; ``workers`` are pids known to be loader workers.

    ``met``: start times of those that were found before. One without a legible mark cannot be known a second time
    once the keeper has ended.
    """
    known, keepers = set(workers), all_pids(run)
    found = []
    for pid in list_pids(PROC):
        again = pid in met and is_alive(pid, met[pid])  # what waits to be reaped is gone
        if pid != os.getpid() and (again or _belongs(run, keepers, pid)):
            stat = read_stat(PROC, pid)
            if stat is not None:
                is_worker = stat.name == WORKER_NAME or pid in known
                found.append(Process(pid, stat.name, is_worker, stat.started_ticks))
    return tuple(sorted(found, key=lambda process: process.pid))


def unmarked(run: RunDir) -> tuple[Process, ...] | None:
    """Living processes that the training has started without the run's mark (with an environment of their own).

    They are named where they outlive it, and never signalled: nobody can tell whether they are meant to stay. None
    once the keeper has ended: nothing leads to them any more.
    """
    pids = read_pids(run)
    if pids is None:
        return ()
    stats = {pid: stat for pid in list_pids(PROC) if (stat := read_stat(PROC, pid)) is not None}
    below: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        below.setdefault(stat.parent, []).append(pid)
    found, todo = [], list(below.get(pids.keeper, ()))
    while todo:
        pid = todo.pop()
        todo += below.get(pid, ())
        if pid != pids.training and not _belongs(run, (pids,), pid):
            found.append(Process(pid, stats[pid].name, False, stats[pid].started_ticks))
    lives = is_alive(pids.keeper, pids.keeper_started)
    return tuple(sorted(found, key=lambda process: process.pid)) if lives else None


def _belongs(run: RunDir, keepers: tuple[Pids, ...], pid: int) -> bool:
    if has_mark(PROC, pid, os.fsencode(mark_of(run))):
        return True
    if not keepers or any(pid == pids.keeper for pids in keepers) or not has_title(PROC, pid):
        return False
    return any(_descends(pid, pids) for pids in keepers)


def _descends(pid: int, pids: Pids) -> bool:
    """Whether ``pid`` hangs on the run's own keeper, which takes in every orphan of the training."""
    for _ in range(DEEPEST):
        if pid == pids.keeper:
            return is_alive(pid, pids.keeper_started)
        stat = read_stat(PROC, pid)
        if stat is None or stat.parent <= 1:
            return False
        pid = stat.parent
    return False


def send(run: RunDir, pid: int, number: signal.Signals, started_ticks: int | None = None) -> bool:
    """Signal one process that is surely of this run; False where it is not or is gone.

    It must bear the mark, or have been started at ``started_ticks`` (a training that sets its own title, as many do,
    overwrites the environment that /proc shows), or hang on the run's keeper with such a title.
    """

    def is_it() -> bool:
        stat = read_stat(PROC, pid)
        is_known = started_ticks is not None and stat is not None and stat.started_ticks == started_ticks
        return is_known or _belongs(run, all_pids(run), pid)

    return handles.send(pid, number, is_it)


def name_of(pid: int) -> str:
    """The program's short name, empty where it is gone."""
    stat = read_stat(PROC, pid)
    return stat.name if stat else ""


def boot_id() -> str | None:
    """Changes at each start of the machine: pids written before mean nothing after."""
    return (read_text("/proc/sys/kernel/random/boot_id") or "").strip() or None


def other_host(facts: dict[str, Any]) -> str | None:
    """The machine that the run was started on, where that is not this one (a home folder may be shared)."""
    host = facts.get("host")
    return host if not is_here(facts) and isinstance(host, str) and host != socket.gethostname() else None


def is_here(facts: dict[str, Any]) -> bool:
    """Whether pids in the run's files are pids of this machine since its last start."""
    return facts.get("boot") in (None, boot_id())

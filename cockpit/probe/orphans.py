"""What workers of ours have started themselves, such as a decoder for each process that loads: it ends with them.

The script has asked for none of these workers, and new ones come with every epoch: without this their children would
pile up. Called by ``workers`` as a source ends, and at each beat. Known by parent, pid and start time, taken while
the worker still lives; of one that was killed, by the mark of its source in their environment. Left alone: what has a
session of its own (it is meant to outlive who started it), and what serves other processes and ends by itself;
workers under the script's own settings never come here.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from time import monotonic, sleep, time_ns
from typing import Any

from ..model.names import ENV_WORKER
from .handles import send

SOFT_S = 5.0
"""Between TERM and KILL."""
AT_EXIT_S = 0.5
"""The same where the interpreter ends, and no beat will come."""
SERVANTS = (b"torch_shm_manager", b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")

_numbers = itertools.count()
_told: dict[tuple[int, int], float] = {}
"""(pid, start time) of what was sent a TERM, and for how long it has had that."""


def new_mark() -> str:
    """No other source has it, in any process of this machine."""
    return "%d.%d.%d" % (os.getpid(), next(_numbers), time_ns())


def bear(mark: str) -> None:
    """In a worker that has just been forked: from here on whatever it starts bears the mark of its source."""
    os.environ[ENV_WORKER] = mark


def take(source: Any) -> None:
    """Notes what the workers of ``source`` have started by now; nobody can tell once they have ended."""
    if getattr(source, "gate", None) is None:
        return
    found: dict[int, int] = source.__dict__.setdefault("_cockpit_started", {})
    mine = [worker for worker in getattr(source, "_workers", ()) if worker._parent_pid == os.getpid()]
    for worker in mine:
        if worker.is_alive():
            fields = _fields(worker.pid)
            found.update(_below(worker.pid, fields[3]) if fields else ())
    if any(worker.exitcode for worker in mine):  # it has died, and who took in its children nobody can tell
        found.update(_bearing(source.mark, str(os.getsid(0))))


def end(source: Any) -> None:
    """The workers of ``source`` are gone: what they have left is told to end."""
    found: dict[int, int] = source.__dict__.pop("_cockpit_started", {})
    for pid, begun in found.items():
        if send(pid, signal.SIGTERM, partial(lives, pid, begun)):
            _told[pid, begun] = 0.0
    until_s = monotonic() + AT_EXIT_S
    while _told and sys.is_finalizing():
        beat(SOFT_S if monotonic() > until_s else 0.0)
        sleep(0.01)


def beat(beat_s: float) -> None:
    """``beat_s`` seconds have passed: who has had its time is killed."""
    for (pid, begun), told_s in list(_told.items()):
        over = told_s + beat_s >= SOFT_S
        if over or not lives(pid, begun):
            _told.pop((pid, begun), None)
            send(pid, signal.SIGKILL, partial(lives, pid, begun))
        else:
            _told[pid, begun] = told_s + beat_s


def _below(pid: int, session: str) -> Iterator[tuple[int, int]]:
    """All that descends from ``pid`` in its session: (pid, start time)."""
    for child in _children(pid):
        fields = _fields(child)
        if fields and fields[3] == session and not _serves(child):
            yield child, int(fields[19])
            yield from _below(child, session)


def _bearing(mark: str, session: str) -> Iterator[tuple[int, int]]:
    """All that a worker with this mark has started: what runs another program shows what it was given."""
    wanted = ("%s=%s" % (ENV_WORKER, mark)).encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and wanted in _read(int(name), "environ").split(b"\0"):
            fields = _fields(int(name))
            if fields and fields[3] == session and not _serves(int(name)):
                yield int(name), int(fields[19])


def _serves(pid: int) -> bool:
    return any(name in _read(pid, "cmdline") for name in SERVANTS)


def _children(pid: int) -> list[int]:
    """Each thread has its own."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(pid, "task/%s/children" % thread).split()]


def _fields(pid: int) -> list[str]:
    """Of its stat, from the state on; empty where it is gone."""
    return _read(pid, "stat").rpartition(b")")[2].decode().split()


def lives(pid: int, begun: int | None = None) -> bool:
    """Whether it still runs, and is that very one where its start is known; what waits to be reaped does not."""
    fields = _fields(pid)
    return bool(fields) and begun in (None, int(fields[19])) and fields[0] not in "ZX"


def _read(pid: int, name: str) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""

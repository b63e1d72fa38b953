"""One reading of the machine for one run: what the engine asks for about twice a second.

``Machine`` reads the real one, ``scripted.ScriptedMachine`` plays a list; both are ``MachineReader``. A reading costs
well under a millisecond, never raises because a process is gone, and says None for what was not measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cockpit.sensors.cores import Cores
from cockpit.sensors.limits import CpuLimit, usable_cpus
from cockpit.sensors.members import Members
from cockpit.sensors.memory import MemoryReading, TreeMemory
from cockpit.sensors.procfs import read_text
from cockpit.sensors.run_queue import RunQueue
from cockpit.sensors.tree import TreeCpu, TreeReading

SLOW_S = 10.0
"""How old limits, shared memory and open files may be: they change rarely."""
SPAN_S_AT_LEAST = 0.1
"""The kernel counts CPU in hundredths of a second: over a shorter span shares would be noise."""


@dataclass(frozen=True)
class MachineReading:
    """CPU in cores (1.0 = one core busy) since the reading before; None: not measured, () likewise.

    ``cpu_main`` / ``cpu_workers`` / ``cpu_others`` are the run's own processes, ``cpu_machine`` everybody's.
    ``cores_busy`` is 0..1 for each of ``limit.cores``. ``run_queue_share`` is waiting for a CPU as a share (0..1) of
    waiting + running, of main and workers. ``cpu_unseen_s`` sums CPU seconds of children too short-lived to be seen.
    """

    at_s: float
    span_s: float | None = None
    limit: CpuLimit | None = None
    cpu_main: float | None = None
    cpu_workers: float | None = None
    cpu_others: float | None = None
    cpu_machine: float | None = None
    cpu_unseen_s: float = 0.0
    cores_busy: tuple[float, ...] = ()
    run_queue_share: float | None = None
    shm_free_bytes: int | None = None
    fds_open: int | None = None
    fds_limit: int | None = None
    memory: MemoryReading | None = None


class MachineReader(Protocol):
    """Whatever can say how the machine is doing."""

    def read(self, now_s: float, main_pid: int | None, worker_pids: Collection[int]) -> MachineReading:
        """The machine at ``now_s`` (any clock that only goes on). ``main_pid`` None: the training has not started."""
        ...


class Machine:
    """The real machine. ``mark`` is ``NAME=value`` as it stands in the environment of the run's processes.

    ``root`` is where ``proc``, ``sys`` and ``dev`` are found; ``boot_clock`` gives seconds since boot.
    """

    def __init__(
        self,
        mark: str | None = None,
        root: Path = Path("/"),
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._root = root
        self._proc = root / "proc"
        self._boot_clock = boot_clock
        self._mark = None if mark is None else os.fsencode(mark)
        self._start_anew(None)

    def _start_anew(self, main_pid: int | None) -> None:
        self._main_pid = main_pid
        self._members = Members(self._proc, self._mark, ignore={os.getpid()})
        self._tree = TreeCpu(self._proc)
        self._memory = TreeMemory(self._proc)
        self._cores = Cores(self._proc)
        self._run_queue = RunQueue(self._proc)
        self._last: MachineReading | None = None
        self._slow_read_at_s: float | None = None

    def read(self, now_s: float, main_pid: int | None, worker_pids: Collection[int]) -> MachineReading:
        """See ``MachineReader``. Asked again too soon (0.1 s), it gives the reading before once more."""
        if main_pid != self._main_pid:
            self._start_anew(main_pid)
        last = self._last
        if last is not None and 0 <= now_s - last.at_s < SPAN_S_AT_LEAST:
            return last
        reading = replace(
            self._read_slow(now_s, main_pid, last or MachineReading(now_s)),
            at_s=now_s,
            span_s=None if last is None or now_s <= last.at_s else now_s - last.at_s,
        )
        reading = self._read_cpu(reading, main_pid, worker_pids)
        self._last = reading
        return reading

    def _read_slow(self, now_s: float, main_pid: int | None, last: MachineReading) -> MachineReading:
        if self._slow_read_at_s is not None and 0 <= now_s - self._slow_read_at_s < SLOW_S:
            return last
        self._slow_read_at_s = now_s
        fds_open, fds_limit = (None, None) if main_pid is None else count_fds(self._proc, main_pid)
        return replace(
            last,
            # the training's last limit stays on the screen after its end
            limit=last.limit if main_pid is None else usable_cpus(main_pid, self._root) or last.limit,
            shm_free_bytes=free_bytes(self._root / "dev/shm"),
            fds_open=fds_open,
            fds_limit=fds_limit,
        )

    def _read_cpu(self, reading: MachineReading, main_pid: int | None, worker_pids: Collection[int]) -> MachineReading:
        cores = self._cores.read(reading.limit.cores if reading.limit else ())
        tree = TreeReading()
        run_queue_share = memory = None
        if main_pid is not None:
            members = self._members.find(reading.at_s, main_pid)
            tree = self._tree.read(reading.at_s, self._boot_clock(), main_pid, worker_pids, members)
            run_queue_share = self._run_queue.read((main_pid, *tree.worker_pids))
            memory = self._memory.read(reading.at_s, tree.worker_pids, (main_pid, *members))
        return replace(
            reading,
            cpu_main=tree.main,
            cpu_workers=tree.workers,
            cpu_others=tree.others,
            cpu_machine=cores.machine,
            cpu_unseen_s=tree.unseen_s,
            cores_busy=cores.busy,
            run_queue_share=run_queue_share,
            memory=memory,
        )


def free_bytes(folder: Path) -> int | None:
    """Room left in the file system of ``folder``, or None if there is no such folder."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def count_fds(proc: Path, pid: int) -> tuple[int | None, int | None]:
    """Open files of a process and how many it may open; None for what is closed to us or unlimited."""
    fds_open: int | None
    try:
        fds_open = len(os.listdir(proc / str(pid) / "fd"))
    except OSError:
        fds_open = None
    for line in (read_text(proc / str(pid) / "limits") or "").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return fds_open, int(soft) if soft.isdecimal() else None
    return fds_open, None

"""How many CPUs a training really has: what every CPU bar is scaled to and every advice is capped by.

``os.cpu_count`` does not see quotas, and inside containers and batch jobs (SLURM pins through affinity) it names a
machine that is not ours. Called by ``machine`` every few seconds, since quotas and affinity may change in a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cockpit.sensors.cgroup import quota_cpus
from cockpit.sensors.procfs import parse_cpu_list, read_text


@dataclass(frozen=True)
class CpuLimit:
    """CPUs usable at a time, the limit that said so (``affinity``, ``cgroup``, ``machine``), and the cores allowed.

    With a quota, ``cpus`` may be less than the number of ``cores``: all may be used, but not all the time.
    """

    cpus: float
    limited_by: str
    cores: tuple[int, ...]


def usable_cpus(
    pid: int,
    root: Path = Path("/"),
    allowed: Callable[[int], frozenset[int]] | None = None,
) -> CpuLimit | None:
    """min(affinity, control group quotas) of ``pid``, or None if it is gone.

    ``root`` is where ``proc`` and ``sys`` are found; ``allowed`` gives the cores a process may run on.
    """
    cores = (allowed or allowed_cores)(pid)
    if not cores:
        return None
    online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
    machine = len(online) or os.cpu_count() or len(cores)
    quota = quota_cpus(pid, root)
    if quota is not None and quota < len(cores):
        cpus, limited_by = quota, "cgroup"
    else:
        cpus, limited_by = float(len(cores)), "affinity" if len(cores) < machine else "machine"
    return CpuLimit(cpus, limited_by, tuple(sorted(cores)))


def allowed_cores(pid: int) -> frozenset[int]:
    """Cores that any thread of ``pid`` may run on; empty if it is gone.

    Any thread, because an OpenMP runtime told to bind pins each of its threads, the main one too, to one core.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(os.cpu_count() or 0))
    cores: set[int] = set()
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        threads = [pid]
    for thread in threads:
        try:
            cores |= os.sched_getaffinity(thread)
        except OSError:
            continue
    return frozenset(cores)

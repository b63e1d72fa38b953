"""CPUs a job really has: recorded file trees for every layout of control groups, and this machine for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.machine_tree import PID, V2, record

from cockpit.sensors.limits import CpuLimit, usable_cpus

V1 = "33 31 0:29 {shows} /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct"
V2_BESIDE_V1 = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"


def eight(_pid: int) -> frozenset[int]:
    return frozenset(range(8))


LAYOUTS = {
    "v2: own group has the quota": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/cpu.max": "150000 100000\n"},
        (1.5, "cgroup"),
    ),
    "v2: the smallest quota on the way up wins, here the one in the middle": (
        "0::/slice/job/step_0\n",
        V2.format(shows="/"),
        {
            "slice/cpu.max": "600000 100000\n",
            "slice/job/cpu.max": "200000 100000\n",
            "slice/job/step_0/cpu.max": "400000 100000\n",
        },
        (2.0, "cgroup"),
    ),
    "v2: own group says max, the one above does not": (
        "0::/slice/job\n",
        V2.format(shows="/"),
        {"slice/cpu.max": "300000 100000\n", "slice/job/cpu.max": "max 100000\n"},
        (3.0, "cgroup"),
    ),
    "v2: a neighbour's quota is not ours": (
        "0::/slice/job\n",
        V2.format(shows="/"),
        {"slice/other/cpu.max": "100000 100000\n", "slice/job/cpu.max": "max 100000\n"},
        (8.0, "machine"),
    ),
    "v2: a period that is not the usual one": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/cpu.max": "25000 10000\n"},
        (2.5, "cgroup"),
    ),
    "v2: less than one CPU": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/cpu.max": "50000 100000"},
        (0.5, "cgroup"),
    ),
    "v2: private namespace, the container's own group is the top": (
        "0::/\n",
        V2.format(shows="/"),
        {"cpu.max": "400000 100000\n"},
        (4.0, "cgroup"),
    ),
    "v2: host's namespace, the mount shows our branch alone": (
        "0::/system.slice/docker-1f.scope\n",
        V2.format(shows="/system.slice/docker-1f.scope"),
        {"cpu.max": "250000 100000\n"},
        (2.5, "cgroup"),
    ),
    "v2: the mount shows somebody else's branch": (
        "0::/docker/b\n",
        V2.format(shows="/docker/a"),
        {"cpu.max": "100000 100000\n"},
        (8.0, "machine"),
    ),
    "v2: the process is outside our namespace": (
        "0::/../b\n",
        V2.format(shows="/"),
        {"cpu.max": "100000 100000\n", "b/cpu.max": "100000 100000\n"},
        (8.0, "machine"),
    ),
    "v2: no such files (controller not enabled)": ("0::/job\n", V2.format(shows="/"), {}, (8.0, "machine")),
    "v2: a quota above the affinity does not count": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/cpu.max": "6400000 100000\n"},
        (8.0, "machine"),
    ),
    "v2: nonsense in the file": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/cpu.max": "lots\n"},
        (8.0, "machine"),
    ),
    "v2: blanks in the mount's path": (
        "0::/job\n",
        V2.format(shows="/").replace("/sys/fs/cgroup ", "/sys/fs/cgroup/a\\040b "),
        {"a b/job/cpu.max": "100000 100000\n"},
        (1.0, "cgroup"),
    ),
    "v1: own group": (
        "5:memory:/x\n4:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n",
        V1.format(shows="/"),
        {
            "cpu,cpuacct/docker/1f/cpu.cfs_quota_us": "350000\n",
            "cpu,cpuacct/docker/1f/cpu.cfs_period_us": "100000\n",
        },
        (3.5, "cgroup"),
    ),
    "v1: -1 is no quota, the group above has one": (
        "4:cpu,cpuacct:/pods/p/c\n",
        V1.format(shows="/"),
        {
            "cpu,cpuacct/pods/p/c/cpu.cfs_quota_us": "-1\n",
            "cpu,cpuacct/pods/p/c/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/pods/p/cpu.cfs_quota_us": "100000\n",
            "cpu,cpuacct/pods/p/cpu.cfs_period_us": "50000\n",
        },
        (2.0, "cgroup"),
    ),
    "v1: inside a container, /proc names the host's path": (
        "4:cpu,cpuacct:/docker/1f\n",
        V1.format(shows="/docker/1f"),
        {"cpu,cpuacct/cpu.cfs_quota_us": "100000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
        (1.0, "cgroup"),
    ),
    "v1: cpuset is not the cpu controller": (
        "4:cpuset:/job\n",
        V1.format(shows="/"),
        {"cpu,cpuacct/job/cpu.cfs_quota_us": "100000\n"},
        (8.0, "machine"),
    ),
    "hybrid: v1 has the cpu controller, v2 is mounted beside it": (
        "3:cpu,cpuacct:/job\n0::/user\n",
        V1.format(shows="/") + "\n" + V2_BESIDE_V1,
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "200000\n",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "unified/user/cgroup.procs": "",
        },
        (2.0, "cgroup"),
    ),
    "nothing to be seen: no groups, no mounts": ("", "", {}, (8.0, "machine")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_recorded_tree_gives_the_limit_that_holds(layout: str, tmp_path: Path) -> None:
    group, mounts, files, (cpus, limited_by) = LAYOUTS[layout]
    root = record(tmp_path, group, mounts, files)
    assert usable_cpus(PID, root, eight) == CpuLimit(cpus, limited_by, tuple(range(8)))


def test_affinity_smaller_than_the_machine_is_named(tmp_path: Path) -> None:
    root = record(tmp_path, "0::/job\n", V2.format(shows="/"), {"job/cpu.max": "600000 100000\n"})
    assert usable_cpus(PID, root, lambda _: frozenset({5, 2})) == CpuLimit(2.0, "affinity", (2, 5))


def test_a_process_that_is_gone_has_no_limit(tmp_path: Path) -> None:
    root = record(tmp_path, "0::/job\n", V2.format(shows="/"), {})
    assert usable_cpus(PID, root, lambda _: frozenset()) is None
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert usable_cpus(gone.pid) is None


def test_a_real_process_bound_to_one_core() -> None:
    core = min(os.sched_getaffinity(0))
    with sleeper(bound_to=core) as pid:
        limit = usable_cpus(pid)
    assert limit is not None
    assert limit.cores == (core,)
    assert limit.cpus <= 1.0


def test_a_real_thread_bound_elsewhere_widens_what_the_process_has() -> None:
    # what OpenMP does when told to bind: each thread on a core of its own, the main thread too
    cores = sorted(os.sched_getaffinity(0))
    lines = (
        "import os, threading, time",
        f"t = threading.Thread(target=lambda: (os.sched_setaffinity(0, {{{cores[-1]}}}), time.sleep(60)), daemon=True)",
        "t.start(); time.sleep(0.2)",
        f"os.sched_setaffinity(0, {{{cores[0]}}}); print('bound', flush=True); time.sleep(60)",
    )
    with subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"bound\n"
            limit = usable_cpus(process.pid)
        finally:
            process.kill()
    assert limit is not None
    assert limit.cores == tuple(sorted({cores[0], cores[-1]}))


def test_a_real_control_group_agrees_with_its_own_files() -> None:
    """Where we may make a group (as root), one with half a CPU is really made; elsewhere our own group is compared."""
    with half_a_cpu() as (pid, expected_at_most):
        limit = usable_cpus(pid)
    assert limit is not None
    assert 0 < limit.cpus <= expected_at_most
    if expected_at_most == 0.5:
        assert limit.limited_by == "cgroup"


@contextmanager
def sleeper(bound_to: int | None = None) -> Iterator[int]:
    code = "import time; print('up', flush=True); time.sleep(60)"
    bind = f"import os; os.sched_setaffinity(0, {{{bound_to}}})\n" if bound_to is not None else ""
    with subprocess.Popen([sys.executable, "-c", bind + code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


@contextmanager
def half_a_cpu() -> Iterator[tuple[int, float]]:
    """A process in a new v1 group with half a CPU, or in ours where that is not allowed: (pid, CPUs at most)."""
    group = Path(f"/sys/fs/cgroup/cpu/cockpit-test-{os.getpid()}")
    made = False
    with sleeper() as pid:
        try:
            try:
                group.mkdir()
                made = True
                (group / "cpu.cfs_quota_us").write_text("50000")
                (group / "cgroup.procs").write_text(str(pid))
            except OSError:
                yield pid, float(len(os.sched_getaffinity(0)))
            else:
                yield pid, 0.5
                # an empty group can be removed, one with a process in it cannot
                Path("/sys/fs/cgroup/cpu/cgroup.procs").write_text(str(pid))
        finally:
            if made:
                group.rmdir()

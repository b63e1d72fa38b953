"""Memory that one more process may take: recorded file trees for the layouts of control groups, and this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.machine_tree import PID, V2, record

from cockpit.probe.memory_left import memory_left

MEMORY = "35 31 0:31 {shows} /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory"
PLENTY = "MemTotal: 64000000 kB\nMemFree: 100 kB\nMemAvailable: 32000000 kB\n"
MACHINE = 32_000_000 * 1024
NO_LIMIT = "9223372036854771712\n"

LAYOUTS = {
    "v2: a limit, and what is taken but could be given up": (
        "0::/job\n",
        V2.format(shows="/"),
        {
            "job/memory.max": "1000000000\n",
            "job/memory.high": "max\n",
            "job/memory.current": "900000000\n",
            "job/memory.stat": "anon 500000000\nfile 400000000\ninactive_file 300000000\n",
        },
        400_000_000,
    ),
    "v2: where it is slowed down counts as a limit": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/memory.max": "1000000000\n", "job/memory.high": "800000000\n", "job/memory.current": "500000000\n"},
        300_000_000,
    ),
    "v2: a group above has less": (
        "0::/pod/job\n",
        V2.format(shows="/"),
        {
            "pod/job/memory.max": "9000000000\n",
            "pod/job/memory.current": "500000000\n",
            "pod/memory.max": "2000000000\n",
            "pod/memory.current": "1900000000\n",
        },
        100_000_000,
    ),
    "v2: over its limit is nothing, and not less": (
        "0::/job\n",
        V2.format(shows="/"),
        {"job/memory.max": "1000\n", "job/memory.current": "5000\n"},
        0,
    ),
    **{
        f"v2: {name}": (
            "0::/job\n",
            V2.format(shows="/"),
            {"job/memory.max": f"{text}\n", "job/memory.current": "7\n"},
            MACHINE,
        )
        for name, text in (("no limit", "max"), ("nonsense", "lots"))
    },
    "v1: own group": (
        "5:memory:/x\n4:cpu,cpuacct:/docker/1f\n",
        MEMORY.format(shows="/"),
        {
            "memory/x/memory.limit_in_bytes": "1000000000\n",
            "memory/x/memory.usage_in_bytes": "700000000\n",
            "memory/x/memory.stat": "inactive_file 1\ntotal_inactive_file 200000000\n",
            "memory/docker/1f/memory.limit_in_bytes": "5\n",
            "memory/docker/1f/memory.usage_in_bytes": "5\n",
        },
        500_000_000,
    ),
    "v1: no limit": (
        "5:memory:/x\n",
        MEMORY.format(shows="/"),
        {"memory/x/memory.limit_in_bytes": NO_LIMIT, "memory/x/memory.usage_in_bytes": "7\n"},
        MACHINE,
    ),
    "v1: inside a container, /proc names the host's path": (
        "5:memory:/docker/1f\n",
        MEMORY.format(shows="/docker/1f"),
        {"memory/memory.limit_in_bytes": "1000\n", "memory/memory.usage_in_bytes": "400\n"},
        600,
    ),
    "no groups to be seen": ("", "", {}, MACHINE),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_recorded_tree_gives_what_is_left(layout: str, tmp_path: Path) -> None:
    group, mounts, files, left = LAYOUTS[layout]
    root = record(tmp_path, group, mounts, {**files})
    (root / "proc" / "meminfo").write_text(PLENTY)
    assert memory_left(PID, str(root)) == left
    (root / "proc" / "meminfo").write_text("MemAvailable: 0 kB\n")
    assert memory_left(PID, str(root)) == 0


def test_where_nobody_tells_there_is_no_figure(tmp_path: Path) -> None:
    assert memory_left(PID, str(tmp_path)) is None


def test_this_machine_tells() -> None:
    assert (memory_left() or 0) > 1 << 20

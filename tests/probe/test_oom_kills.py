"""Which count of the kernel's tells that a process of the job was ended for lack of memory: recorded file trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.probe.oom_kills import oom_kills

V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "35 31 0:31 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
TREES = {
    "v2: the job's own": ("0::/job\n", V2, {"job/memory.events": "low 0\noom 9\noom_kill 2\n"}, 2),
    "v2: not that of the group above": (
        "0::/pod/job\n", V2, {"pod/memory.events": "oom_kill 8\n", "pod/job/memory.events": "oom_kill 0\n"}, 0,
    ),
    "v2: the topmost group tells nothing": ("0::/\n", V2, {}, 7),
    "v1": ("5:memory:/x\n", V1, {"memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"}, 5),
    "v1: an old kernel counts none": ("5:memory:/x\n", V1, {"memory/x/memory.oom_control": "under_oom 0\n"}, 7),
    "no groups": ("", "", {}, 7),
}  # fmt: skip


@pytest.mark.parametrize(("group", "mounts", "files", "count"), TREES.values(), ids=TREES)
def test_the_nearest_count(group: str, mounts: str, files: dict[str, str], count: int, tmp_path: Path) -> None:
    whole = {
        "proc/42/cgroup": group, "proc/self/mountinfo": mounts, "proc/vmstat": "pgfault 1\noom_kill 7\n",
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }  # fmt: skip
    for name, text in whole.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert oom_kills(42, str(tmp_path)) == count


def test_where_nobody_counts_there_is_none(tmp_path: Path) -> None:
    assert oom_kills(42, str(tmp_path)) is None

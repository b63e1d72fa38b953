"""A recorded machine: the files of ``/proc`` and ``/sys`` that tell of its control groups, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

PID = 4242
V2 = "30 23 0:26 {shows} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"


def record(root: Path, group: str, mounts: str, files: dict[str, str]) -> Path:
    """A file tree as /proc and /sys of a machine with eight cores."""
    whole = {
        f"proc/{PID}/cgroup": group,
        "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts + "\n",
        "sys/devices/system/cpu/online": "0-7\n",
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in whole.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root

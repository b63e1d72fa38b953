"""What a process inherits beside its environment: umask, priority, processors, limits. From one keeper for the next.

A later engine may have been started from another shell, and a training must not notice. Nothing here changes anything:
the new keeper takes it over, since every process of its run inherits from it.
"""

from __future__ import annotations

import os
import resource
from typing import Any

from cockpit.sensors.procfs import read_text


def likeness_of(pid: int) -> dict[str, Any]:
    """As plain values for a keeper's plan; what cannot be read is left as it is there."""
    found: dict[str, Any] = {}
    status = read_text(f"/proc/{pid}/status") or ""
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("Umask:")]
    if masks:
        found["umask"] = int(masks[0], 8)
    try:
        found["nice"] = os.getpriority(os.PRIO_PROCESS, pid)
        found["cpus"] = sorted(os.sched_getaffinity(pid))
        numbers = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
        found["limits"] = {str(number): list(resource.prlimit(pid, number)) for number in sorted(numbers)}
    except (OSError, ValueError):
        pass
    return found

"""Whether the kernel has ended a process of the job for lack of memory: asked where a worker was killed, for the words.

``sources`` counts when workers start, ``workers`` once more when one has died. It must never call likely what it has
not seen counted: a person and a batch system kill with the same signal.
"""

from __future__ import annotations

import os

from .memory_left import fields, groups

EVENTS = {"cgroup2": "memory.events", "cgroup": "memory.oom_control"}
COUNTED = "likely out of memory"
NOT_COUNTED = "by whom is not known"
NOT_KNOWN = "by whom is not known; the kernel does so where memory ends"


def oom_kills(pid: int | None = None, root: str = "/") -> int | None:
    """Processes ended for it so far, of the process's own group, or where that does not tell, of the machine."""
    own = groups(os.getpid() if pid is None else pid, root)
    places = [os.path.join(folder, EVENTS[kind]) for folder, kind in own[:1]] + [os.path.join(root, "proc/vmstat")]
    counts = (fields(place).get("oom_kill") for place in places)  # each is asked only where those before do not tell
    return next((count for count in counts if count is not None), None)


def killed_words(before: int | None, now: int | None) -> str:
    """How a SIGKILL has come, by the counts from before and after it."""
    if before is None or now is None:
        return " (%s)" % NOT_KNOWN
    return ": " + COUNTED if now > before else " (%s)" % NOT_COUNTED

"""A process as the kernel sees it: each thread's name, state, and what it waits in. For those that cannot answer.

Asked by the verb ``dump``. A training that hangs in C code with the interpreter's lock, or is stopped, cannot say where
it stands; this much is always there, and looking costs it nothing.
"""

from __future__ import annotations

from pathlib import Path

from cockpit.model.stacks import StackPart, kernel_words
from cockpit.sensors.procfs import read_text

THREADS_AT_MOST = 64


def kernel_view(pid: int, proc: Path = Path("/proc")) -> tuple[StackPart, ...]:
    """One part a thread, the first thread first; nothing where the process is gone."""
    try:
        threads = sorted(int(folder.name) for folder in (proc / str(pid) / "task").iterdir())
    except OSError:
        return ()
    views = (_thread(proc / str(pid) / "task" / str(thread), thread) for thread in threads[:THREADS_AT_MOST])
    return tuple(view for view in views if view is not None)


def _thread(folder: Path, thread: int) -> StackPart | None:
    name, stat = read_text(folder / "comm"), read_text(folder / "stat")
    if name is None or stat is None:
        return None
    place = read_text(folder / "wchan") or ""
    return StackPart(f"thread {name.strip()} ({thread}): {kernel_words(stat, place)}")

"""How a loader worker tells where it stands: only one that a change of ours has made, and only when asked.

``ready`` runs once in such a worker, right after the fork: the interpreter's own ``faulthandler`` writes all stacks
into memory that the training reads back, at a signal that nobody uses. It works while the worker hangs in C code, and
stops nothing. Before it is asked, the training looks whether all is still so: a signal that nobody waits for would
kill the worker, and a descriptor may have become a file of the script.
"""

from __future__ import annotations

import faulthandler
import os
import signal

from ..model.stacks import kernel_words

SIGNAL = int(signal.SIGRTMAX) - 3 if hasattr(signal, "SIGRTMAX") else 0
MEMORY = "cockpit-stacks"
LONGEST = 64 * 1024
BOTTOMS = ("in <module>", "in _run_module_as_main", "...")
"""How an answer ends: where a process begins, as a script or with ``-m``, or the mark of a stack that was cut."""


def ready() -> None:
    """In a worker of ours: from now on it answers. Raises OSError where there is no descriptor to be had."""
    if SIGNAL and hasattr(os, "memfd_create") and not _is_taken(os.getpid()):
        faulthandler.register(SIGNAL, file=os.memfd_create(MEMORY), all_threads=True, chain=False)


class Question:
    """Put to one worker. ``why``: why there is no answer to be had, where that is known already."""

    def __init__(self, pid: int, why: str | None, place: str = "", read: int = 0) -> None:
        self.pid, self._why, self._place, self._read, self._seen = pid, why, place, read, read

    def is_open(self) -> bool:
        """Whether an answer may still come, or is still being written."""
        if self._why is not None:
            return False
        before, self._seen = self._seen, _size(self._place)
        return not (before == self._seen > self._read and self._is_whole())

    def _is_whole(self) -> bool:
        """A thread of the worker's may write it while others run, and be made to wait in the middle: the first
        thread comes last. One that begins elsewhere is waited for as long as one that does not answer."""
        try:
            return self._text().rstrip().endswith(BOTTOMS)
        except OSError:
            return True

    def _text(self) -> str:
        with open(self._place, "rb") as memory:
            memory.seek(self._read)
            return memory.read(LONGEST).decode("utf-8", "replace")

    def answer(self) -> list[object]:
        """``[title, lines]``: what it has said, or why it has not, and what the kernel says of it."""
        title = "worker %d, %s" % (self.pid, state_of(self.pid))
        if self._why is None and self._seen <= self._read:
            self._why = "it has not answered"
        if self._why is not None:
            return ["%s: %s" % (title, self._why), []]
        try:
            text = self._text()
        except OSError:
            return ["%s: it has just ended" % title, []]
        return [title, [line.strip() for line in text.splitlines() if line.strip()]]


def question(pid: int, ours: bool) -> Question:
    """Asks worker ``pid`` where that is safe; ``ours``: a change of ours has made it."""
    if not ours:
        return Question(pid, "the script's own worker, which is left as the script has it")
    place = _place(pid)
    if place is None or not _is_taken(pid):
        return Question(pid, "it cannot be asked (started by spawn, or its descriptors were closed)")
    size = _size(place)
    try:
        os.kill(pid, SIGNAL)
    except OSError:
        return Question(pid, "it has just ended")
    return Question(pid, None, place, size)


def state_of(pid: int) -> str:
    """What the kernel says of it."""
    return kernel_words(_read("/proc/%d/stat" % pid), _read("/proc/%d/wchan" % pid))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _is_taken(pid: int) -> bool:
    """Whether that process catches the signal."""
    for line in _read("/proc/%d/status" % pid).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _place(pid: int) -> str | None:
    """Where the answer will stand, as long as that descriptor is still ours."""
    folder = "/proc/%d/fd" % pid
    try:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if MEMORY in os.readlink(path):
                return path
    except OSError:
        return None
    return None


def _size(place: str) -> int:
    try:
        return os.stat(place).st_size
    except OSError:
        return 0

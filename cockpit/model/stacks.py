"""What the threads of a training and its loader workers are doing, as text: asked for by a person, told by the probe.

Lines are the interpreter's own words (``File "train.py", line 41 in main``), the most recent call first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StackPart:
    """One thread, or one worker: who it is, and where it stands. Without lines ``title`` says why there are none."""

    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class StacksSeen:
    """One process has answered the question ``id``."""

    at_s: float
    id: str
    pid: int
    parts: tuple[StackPart, ...] = ()


STATES = {
    "R": "running",
    "S": "waiting",
    "D": "waiting for a disk or a file server",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
}


def kernel_words(stat: str, place: str) -> str:
    """A process or thread as the kernel sees it, from its ``stat`` and ``wchan``: ``waiting in futex_wait_queue``."""
    fields = stat.rpartition(")")[2].split()
    if not fields:
        return "gone"
    words = STATES.get(fields[0], fields[0])
    place = place.strip()
    return "%s in %s" % (words, place) if place not in ("", "0") and fields[0] in "SD" else words

"""What becomes of a change: done, rolled back, and why in one line. Called by the chain; read by the hooks.

It must never swallow what is the script's own: an exception of its signal handlers passes, one of its sampler waits
in the feed for whoever asks next.
"""

from __future__ import annotations

import re
from typing import Any, Callable, NamedTuple

from .feed import Feed
from .groups import Group
from .guard import _raised_by_signal_handler as raised_by_signal_handler
from .patience import GivenUp


class Notice(NamedTuple):
    """A change was rolled back: ``failed`` could not be kept, ``in_force`` took its place, and why."""

    failed: Group
    in_force: Group
    reason: str


class Swap(NamedTuple):
    """A swap is done: what it cost the training just now, what the old workers still hand out, what comes after.

    ``drain`` and ``capacity`` are batches, ``stall_ns`` nanoseconds. ``failed``: nothing has changed, a notice
    says why.
    """

    stall_ns: int
    drain: int
    capacity: int
    failed: bool = False


class Doubt(NamedTuple):
    """A dataset raised under new settings: it may do so under any. The change is judged by what comes next: when all
    ``samples`` up to those that failed have been handed out, the former settings could do what it could not."""

    failed: Group
    reason: str
    kind: type
    ways_back: list[Group]
    samples: int


def reach(indices: list[Any], failing: Any) -> int:
    """Samples in the batches of ``indices`` up to and with the ``failing`` one."""
    samples = 0
    for index in indices:
        samples += len(index)
        if index is failing:
            break
    return samples


def attempt(feed: Feed, work: Callable[..., Any], *args: Any) -> tuple[Any, str | None]:
    """``work(*args)`` and None, or None and the reason; what the sampler raised meanwhile waits in ``feed``."""
    try:
        return work(*args), None
    except Exception as error:
        if raised_by_signal_handler(error.__traceback__):
            raise
        if feed.reading:
            feed.hold(error)
        return None, why(error)


HINTS = (
    ("No space left on device", "likely out of shared memory (/dev/shm)"),
    ("unable to resize file </torch_", "likely out of shared memory (/dev/shm)"),
    ("unable to mmap", "likely out of shared memory (/dev/shm), or of memory"),
    ("Too many open files", "the limit is ulimit -n"),
    ("received 0 items of ancdata", "too many open files; the limit is ulimit -n"),
    ("Cannot re-initialize CUDA in forked subprocess", "the dataset uses CUDA, and forked workers cannot"),
    ("Cannot allocate memory", "the machine or the job is out of memory"),
    ("before the current process has finished its bootstrapping", 'the script has no if __name__ == "__main__"'),
)
"""What an error's own words do not say, to those who have never met it."""
_SENTENCE = re.compile(r"(?<=[^.\s]{2})\. (?![a-z])")
"""Where one ends: neither at what stands for something left out ("out=... arguments") nor at "e.g."."""
LONG = 120
"""Characters of a reason that fit beside a change; what goes on for longer gives its first sentence."""


def why(error: Exception) -> str:
    """One line about a failure: the last line of what a worker wrote, or the exception itself, and what it means."""
    words = _in_one_line(error)
    hint = next((hint for text, hint in HINTS if text in str(error)), None)
    if len(words) > LONG:
        first = _SENTENCE.split(words)[0]
        words = first if len(first) <= LONG else first[: LONG - 1] + "…"
    return words if hint is None else "%s: %s" % (words, hint)


def _in_one_line(error: Exception) -> str:
    if isinstance(error, GivenUp):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Caught "):
        return lines[-1]  # torch wraps what a worker raised; the original stands last
    return "%s: %s" % (type(error).__name__, lines[0]) if lines else type(error).__name__

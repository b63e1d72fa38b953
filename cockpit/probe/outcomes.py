"""What becomes of a change: done, rolled back, and why in one line. Called by the chain; read by the hooks.

It must never swallow what is the script's own: an exception of its signal handlers passes, one of its sampler waits
in the feed for whoever asks next.
"""

from __future__ import annotations

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
    """A dataset raised under new settings: it may do so under any. The change is judged by the next batch."""

    failed: Group
    reason: str
    kind: type
    ways_back: list[Group]


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


def why(error: Exception) -> str:
    """One line about a failure: the last line of what a worker wrote, or the exception itself."""
    if isinstance(error, GivenUp):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Caught "):
        return lines[-1]  # torch wraps what a worker raised; the original stands last
    return "%s: %s" % (type(error).__name__, lines[0]) if lines else type(error).__name__

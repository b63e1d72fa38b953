"""When workers that give nothing are given up. One a loader, kept by its control, asked by its sources.

It must never be short with what is only slow, and never be asked about workers that the script itself has set up:
those are torch's to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.names import ENV_PATIENCE

LEAST_S = 60.0
TIMES = 30.0


class GivenUp(RuntimeError):
    """Workers that are alive have given nothing for too long; the words are the whole reason."""


class Patience:
    """A fork can hang for ever on a lock that another thread held, a worker on a file server that is gone, and nobody
    could undo a change to a training that hangs.

    A slow batch is not a hang: what is waited is ``least_s`` seconds, or ``TIMES`` the longest that a batch of this
    loader has ever taken. A wrong guess costs only time.
    """

    def __init__(self, least_s: float | None = None) -> None:
        self.least_s = LEAST_S if least_s is None else least_s
        self.longest_s = 0.0

    def saw(self, wait_s: float) -> None:
        """One batch has taken so long, under any settings."""
        self.longest_s = max(self.longest_s, wait_s)

    def is_over(self, fruitless_s: float) -> bool:
        return fruitless_s >= max(self.least_s, TIMES * self.longest_s)


def least_s(environ: Mapping[str, str]) -> float | None:
    """What the environment says instead of ``LEAST_S``; None where it says nothing, or nothing that makes sense."""
    try:
        seconds = float(environ.get(ENV_PATIENCE, ""))
    except ValueError:
        return None
    return seconds if seconds > 0 else None

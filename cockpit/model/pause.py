"""What the probe says of a pause that was asked for, as one event; and the words of who asked.

Made by the engine. Why a pause ended, or never began, is always in ``reason`` where it was not a person who said so.
"""

from __future__ import annotations

from dataclasses import dataclass

ASKED, PAUSED, RESUMING, OVER, REFUSED = "asked", "paused", "resuming", "over", "refused"


@dataclass(frozen=True)
class PauseMoved:
    """``asked`` (it takes hold when the step under way has ended), ``paused``, ``resuming`` (somebody said that it goes
    on), ``over``, ``refused``. ``reason``: why, or for ``asked`` what it still waits for."""

    at_s: float
    id: str
    state: str
    step: int | None = None
    reason: str | None = None

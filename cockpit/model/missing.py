"""Why nothing is heard from a training: made by the engine, which looks at its processes while no probe speaks."""

from __future__ import annotations

from dataclasses import dataclass

FAILED = "the probe failed while it was loaded"
"""How the one reason begins that no waiting changes."""


@dataclass(frozen=True)
class ProbeMissed:
    """No probe has said hello. ``reason`` is a sentence without its full stop; None: it was wrong, or is not known."""

    at_s: float
    reason: str | None = None

"""A disk that runs full under a run's output, in words and as a finding. Pure; read by status, report and screen.

A training whose output cannot be written is told so by its own ``print``, which raises: many end by that.
"""

from __future__ import annotations

from typing import Any

from .state import State

FULL_BYTES = 2**20
"""Less than this is full: a buffer's worth of output does not go in any more."""


def finding(state: State) -> dict[str, Any] | None:
    """As JSON, in the words of every finding; None while there is room."""
    if state.disk_free_bytes is None:
        return None
    return {
        "kind": "disk_full" if state.disk_free_bytes < FULL_BYTES else "disk_low",
        "severity": "high",
        "evidence": {"free_bytes": state.disk_free_bytes},
        "knob": None,
        "value": None,
        "predicted_gain_pct": None,
    }


def words(state: State) -> str | None:
    """One sentence without its full stop; None where there is nothing to say."""
    free = state.disk_free_bytes
    if free is None:
        return None
    left = f"{free / 2**20:.1f} MiB"
    if state.phase not in ("ended", "lost"):
        return f"only {left} are left on the disk that its output goes to: when that is full, its own prints fail"
    if state.exit_status == 0 or free >= FULL_BYTES:
        return None
    return f"the disk that its output goes to was full ({left} left): its own prints fail then, which may be why"

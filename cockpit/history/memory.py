"""Memory that grows until there is none left, hours later: found in the state while there is time, and said. Pure.

Fold, status, report, screen and ``save`` call it. A setup that would end the training in the night is not worth
keeping, however fast it is. What was held under another setting, or by another process, tells nothing about this one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cockpit.analysis.growth import Growth, growth_of
from cockpit.analysis.policy import POLICY
from cockpit.model.memory import MemorySeen
from cockpit.model.sizes import size_words

from .boundary import boundary_in_s
from .spans import duration
from .state import EPOCHS_LONGEST, State

LONGEST = 64
"""Above so many samples every second one is forgotten: what is kept is evenly spaced and spans the whole time."""
EVEN = 0.9


def seen(state: State, event: MemorySeen) -> State:
    """One more sample of what is in force."""
    known = state.memory
    if known and _began_s(state) > known[0].at_s:
        known = ()
    if len(known) > 2 and known[-1].at_s - known[-2].at_s < EVEN * (known[1].at_s - known[0].at_s):
        known = known[:-1]  # it stood there as the newest only
    kept = (*known, event)
    return replace(state, memory=kept[::2] if len(kept) > LONGEST else kept)


def _began_s(state: State) -> float:
    """Since when this process has run under this setting."""
    lives = [rank.at_s for rank in state.ranks]
    return max([state.current.landed_s or state.started_s or 0.0, *lives])


def _watched(state: State) -> tuple[list[MemorySeen], float | None]:
    """The samples that count, and how far ahead they may be told (seconds; None: not at all).

    In its first epoch a dataset may fill a cache, and where workers are made anew their memory begins anew with them:
    until two whole epochs more are over, a line holds to the end of the epoch and no further.
    """
    began_s = _began_s(state)
    whole = [each for each in state.epochs if each.at_s > began_s]
    settled_s = began_s + POLICY.memory_warm_s
    if len(whole) > 2:
        ahead_s: float | None = POLICY.memory_ahead_s
        settled_s = max(settled_s, began_s if len(state.epochs) == EPOCHS_LONGEST else whole[0].at_s)
    else:
        left_s = boundary_in_s(state)
        ahead_s = None if left_s is None else min(left_s, POLICY.memory_ahead_s)
    return [sample for sample in state.memory if sample.at_s >= settled_s], ahead_s


def _growth(state: State) -> tuple[Growth, float, bool] | None:
    """How it grows, in how many seconds nothing is left, and whether most of it is the workers'."""
    if state.phase not in ("running", "stopping") or not state.memory:
        return None
    samples, ahead_s = _watched(state)
    left = state.memory[-1].left_bytes
    if left is None or ahead_s is None:
        return None
    found = growth_of([(sample.at_s, sample.used_bytes) for sample in samples])
    if found is None:
        return None
    full_in_s = left / found.per_s - (state.at_s - state.memory[-1].at_s)
    if not 0.0 < full_in_s <= ahead_s:  # by now it would be full: what has come since, nobody knows
        return None
    more = samples[-1].used_bytes - samples[0].used_bytes
    workers = samples[-1].workers_bytes - samples[0].workers_bytes
    return found, full_in_s, 2 * workers > more


def finding(state: State) -> dict[str, Any] | None:
    """As JSON, in the words of every finding; None where nothing grows, or it is not known."""
    grows = _growth(state)
    if grows is None:
        return None
    found, full_in_s, by_workers = grows
    newest = state.memory[-1]
    return {
        "kind": "memory_grows",
        "severity": "high",
        "evidence": {
            "used_bytes": newest.used_bytes,
            "workers_bytes": newest.workers_bytes,
            "left_bytes": newest.left_bytes,
            "bytes_per_h": round(3600 * found.per_s),
            "watched_s": found.span_s,
            "full_in_s": full_in_s,
        },
        "knob": "num_workers" if by_workers else None,
        "value": None,
        "predicted_gain_pct": None,
    }


def words(state: State) -> str | None:
    """One sentence without its full stop; None where there is nothing to say."""
    grows = _growth(state)
    if grows is None:
        return None
    found, full_in_s, by_workers = grows
    left = size_words(state.memory[-1].left_bytes or 0)
    where = ", most of it in the loader's workers: fewer of them hold less" if by_workers else ""
    per_h = size_words(3600 * found.per_s)
    return f"memory grows by {per_h} an hour; {left} are left, gone in {duration(full_in_s)} if it goes on so{where}"


def plain(state: State) -> dict[str, Any]:
    """What stands under ``machine`` in the status; null where not measured."""
    newest = state.memory[-1] if state.memory and state.phase in ("running", "paused", "stopping") else None
    return {
        "memory_used_bytes": newest.used_bytes if newest else None,
        "memory_left_bytes": newest.left_bytes if newest else None,
        "shm_free_bytes": newest.shm_free_bytes if newest else None,
    }

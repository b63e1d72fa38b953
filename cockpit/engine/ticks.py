"""Adds up the probe's ticks (about five a second) into the figures of one sample (two a second). Used by ``hear``.

Keeps "nothing known" apart from "nothing happened": a sum over ticks in which the probe could not measure is None.
"""

from __future__ import annotations

from typing import Any

from .told import seconds

_SUMS = ("samples", "wall_ns", "wait_ns", "start_ns", "forward_ns", "backward_ns", "optimizer_ns")
_COUNTERS = ("step", "epoch", "step_in_epoch", "optimizer_steps")
SILENT_S = 30.0
"""A probe that has said nothing for so long says nothing about now; until then a stall goes on counting."""


class Ticks:
    """Ticks since the last ``take``, and what the newest one said the training was doing. ``span_s``: of how long."""

    def __init__(self) -> None:
        self._newest: dict[str, Any] | None = None
        self._newest_at_s = 0.0
        self._ended = False
        self._clear()

    def _clear(self) -> None:
        self._count = 0
        self._steps = 0
        self.span_s = 0.0
        self._sums: dict[str, int | None] = dict.fromkeys(_SUMS, 0)

    def add(self, tick: dict[str, Any], at_s: float) -> None:
        """One tick as it came; raises TypeError or ValueError where it is not one."""
        steps = int(tick["steps"])
        for name in _SUMS:
            value, total = tick.get(name), self._sums[name]
            if steps or value is not None:
                self._sums[name] = None if value is None or total is None else total + int(value)
        self._count += 1
        self.span_s += int(tick.get("span_ns") or 0) / 1e9
        self._ended = False
        self._steps += steps
        self._newest, self._newest_at_s = tick, at_s

    @property
    def pending(self) -> bool:
        """Whether something came since the last ``take``."""
        return self._count > 0

    @property
    def has_step(self) -> bool:
        """Whether a step has ended since the last ``take``."""
        return self._steps > 0

    def end(self) -> None:
        """Nobody speaks any more: after the next ``take`` nothing is known."""
        self._ended = True

    def take(self, at_s: float) -> dict[str, Any]:
        """The fields of a ``Sampled`` since the last call; empty where no tick came."""
        tick, age_s = self._newest, at_s - self._newest_at_s
        if tick is None or age_s > SILENT_S:
            return {}
        doing_ns = tick.get("doing_ns")
        fields: dict[str, Any] = {name: tick.get(name) for name in _COUNTERS}
        fields["doing"] = tick.get("doing")
        fields["doing_for_s"] = None if doing_ns is None else doing_ns / 1e9 + max(0.0, age_s)
        fields["queue"] = tuple(tick["queue"]) if tick.get("queue") else None
        fields["wait_kind"] = tick.get("wait_kind")
        if self._count:
            fields["steps"] = self._steps
            fields["samples"] = self._sums["samples"]
            fields |= {name[:-3] + "_s": seconds(self._sums[name]) for name in _SUMS if name.endswith("_ns")}
        self._clear()
        if self._ended:
            self._newest, self._ended = None, False
        return fields

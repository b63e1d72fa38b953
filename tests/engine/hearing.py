"""Ears with a state to speak to, and ticks as a probe tells them: what the tests of hearing share."""

from __future__ import annotations

from typing import Any

from support.events import beginning

from cockpit.engine.hear import Ears
from cockpit.history.fold import fold, fold_all


class Room:
    """Ears, the state they speak to, and what was sent to each connection."""

    def __init__(self, ears: Ears | None = None) -> None:
        self.ears = ears or Ears()
        self.state = fold_all(beginning()[:2])
        self.sent: dict[int, list[dict[str, Any]]] = {}
        self.at_s = 1010.0

    def hear(self, key: int, **message: Any) -> list[Any]:
        send = self.sent.setdefault(key, []).append
        events = self.ears.hear(key, send, message, self.state, self.at_s)
        for event in events:
            self.state = fold(self.state, event)
        return events

    def hello(self, key: int, pid: int, trains: bool = True, **more: Any) -> list[Any]:
        return self.hear(key, m="hello", pid=pid, trains=trains, torch="2.14.1", python="3.11.2", **more)


def tick(**more: Any) -> dict[str, Any]:
    sums = dict.fromkeys(("wall_ns", "wait_ns", "start_ns", "forward_ns", "backward_ns", "optimizer_ns"), 0)
    plain = {
        "m": "tick",
        "step": 7,
        "epoch": 1,
        "step_in_epoch": 2,
        "optimizer_steps": 7,
        "steps": 0,
        "samples": 0,
    }
    return {
        **plain,
        **sums,
        "doing": "forward",
        "doing_ns": 2_000_000,
        "queue": None,
        "wait_kind": None,
        **more,
    }

"""What the probes say, turned into events. Called by the engine with each message and each lost connection.

Several processes of a run may speak (ranks, a launcher that only imports torch): one of them leads, and the run's
numbers are the leader's alone. A message that does not fit is counted and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.model.events import (
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    EpochEnded,
    Event,
    EventsDropped,
    LoaderInfo,
    LoadersSeen,
    ProbeConnected,
    ProbeLost,
)
from cockpit.model.knobs import Value
from cockpit.session.knobs import queued
from cockpit.session.state import State
from cockpit.session.trials import entry_of
from cockpit.wire.codec import from_plain

from .ticks import Ticks, seconds

Message = dict[str, Any]


@dataclass(eq=False)
class Probe:
    """One connected process. ``send`` queues a message to it. ``announced``: the state knows of it."""

    send: Callable[[Message], None]
    pid: int
    order: int
    rank: int | None = None
    trains: bool = False
    announced: bool = False
    loaders: tuple[LoaderInfo, ...] = ()


@dataclass
class Ears:
    """All probes of a run. ``schedule`` holds the changes that ``start.json`` set for later, by id."""

    schedule: dict[str, ChangeAsked] = field(default_factory=dict)
    withdrawn: dict[str, ChangeAsked] = field(default_factory=dict)
    probes: dict[int, Probe] = field(default_factory=dict)
    ticks: Ticks = field(default_factory=Ticks)
    bad: int = 0
    _met: int = 0

    def lead(self) -> Probe | None:
        """The probe whose numbers are the run's: one that trains before one that does not, then the lowest rank."""
        return min(
            self.probes.values(),
            key=lambda probe: (not probe.trains, probe.rank if probe.rank is not None else 0, probe.order),
            default=None,
        )

    def hear(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        """The events that one message makes. ``key`` names the connection, ``send`` answers on it."""
        handle = _HANDLERS.get(str(message.get("m")))
        try:
            if handle is not None and (key in self.probes or message.get("m") == "hello"):
                return handle(self, key, send, message, state, at_s)
        except (TypeError, ValueError, KeyError, AttributeError):
            pass
        self.bad += 1
        return []

    def lost(self, key: int, at_s: float) -> list[Event]:
        """The connection has closed."""
        gone = self.probes.pop(key, None)
        if gone is None or not gone.announced or any(probe.pid == gone.pid for probe in self.probes.values()):
            return []
        return [ProbeLost(at_s, gone.pid), *self._after_lead_change(at_s)]

    def tell(self, message: Message) -> None:
        """Say something to every process that may train."""
        for probe in self.probes.values():
            probe.send(message)

    def training_pids(self) -> tuple[int, ...]:
        """Connected processes that train."""
        return tuple(probe.pid for probe in self.probes.values() if probe.trains)

    def worker_pids(self) -> tuple[int, ...]:
        """Loader workers of all processes, as they report them."""
        return tuple(pid for probe in self.probes.values() for info in probe.loaders for pid in info.workers)

    def _hello(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        before = self.lead()
        self._met += 1
        probe = self.probes.get(key) or Probe(send, int(message["pid"]), self._met)
        probe.rank = message.get("rank")
        probe.trains = probe.trains or bool(message.get("trains"))
        self.probes[key] = probe
        for entry in queued(state):
            if entry.origin != "schedule":
                send(ask_message(entry.id, entry.asked, entry.now, entry.loader))
        if not probe.trains and before is not None and before is not probe:
            return []  # a helper process beside one that we already know: not a rank
        probe.announced = True
        connected = ProbeConnected(
            at_s,
            pid=probe.pid,
            torch=str(message.get("torch", "")),
            python=str(message.get("python", "")),
            accelerator=message.get("accelerator"),
            rank=probe.rank,
            world=message.get("world"),
            off=dict(message["off"]) if message.get("off") else None,
        )
        return [connected, *(self._after_lead_change(at_s) if before is not self.lead() else [])]

    def _after_lead_change(self, at_s: float) -> list[Event]:
        lead = self.lead()
        if lead is None:
            self.ticks.end()  # its last words still count
            return []
        self.ticks = Ticks()
        return [LoadersSeen(at_s, lead.loaders)] if lead.loaders else []

    def _loaders(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        probe = self.probes[key]
        probe.loaders = tuple(from_plain(LoaderInfo, item) for item in message["loaders"])
        return [LoadersSeen(at_s, probe.loaders)] if probe is self.lead() else []

    def _tick(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        probe = self.probes[key]
        if not probe.trains and message.get("steps"):
            probe.trains = True
        if probe is self.lead():
            self.ticks.add(message, at_s)
        return []

    def _block(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        if self.probes[key] is not self.lead():
            return []
        block = BlockMeasured(
            at_s,
            step=int(message["step"]),
            steps=int(message["steps"]),
            samples=_count(message, "samples"),
            wall_s=_known(message, "wall_ns"),
            wait_s=seconds(message.get("wait_ns")),
            start_s=_known(message, "start_ns"),
            forward_s=seconds(message.get("forward_ns")),
            backward_s=_known(message, "backward_ns"),
            optimizer_s=_known(message, "optimizer_ns"),
            epoch=int(message["epoch"]),
            change=message.get("change"),
            capacity=int(message.get("capacity") or 0),
        )
        return [block] if block.steps > 0 and block.wall_s > 0 else []

    def _epoch(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        if self.probes[key] is not self.lead():
            return []
        return [
            EpochEnded(
                at_s,
                loader=str(message["loader"]),
                epoch=int(message["epoch"]),
                steps=int(message["steps"]),
                samples=_count(message, "samples"),
                wall_s=_known(message, "wall_ns"),
                start_ms=1000.0 * _known(message, "start_ns"),
            )
        ]

    def _change(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        if self.probes[key] is not self.lead():
            return []
        change = str(message["id"])
        moved = ChangeMoved(
            at_s,
            id=change,
            state=str(message["state"]),
            step=int(message.get("step") or 0),
            stall_ms=None if message.get("stall_ms") is None else float(message["stall_ms"]),
            drain=int(message.get("drain") or 0),
            capacity=int(message.get("capacity") or 0),
            before=_mapping(message.get("before")),
            in_force=_mapping(message.get("in_force")),
            reason=message.get("reason"),
        )
        entry = entry_of(state, change)
        if entry is not None:
            return [] if entry.state == moved.state else [moved]
        if moved.state == "dropped":
            return []
        # a scheduled change enters the ledger when its moment comes; one that we withdrew has overtaken us
        asked = self.schedule.get(change) or self.withdrawn.get(change) or _unknown_change(moved)
        return [_asked_at(asked, at_s), moved]

    def _dropped(
        self, key: int, send: Callable[[Message], None], message: Message, state: State, at_s: float
    ) -> list[Event]:
        return [EventsDropped(at_s, int(message["count"]))]


_HANDLERS: Mapping[str, Callable[[Ears, int, Callable[[Message], None], Message, State, float], list[Event]]] = {
    "hello": Ears._hello,
    "loaders": Ears._loaders,
    "tick": Ears._tick,
    "block": Ears._block,
    "epoch": Ears._epoch,
    "change": Ears._change,
    "dropped": Ears._dropped,
}


def ask_message(change: str, knobs: Mapping[str, Value], now: bool, loader: str | None) -> Message:
    """Engine to probe: apply this. An id that the probe knows already is ignored there."""
    return {"m": "ask", "id": change, "knobs": dict(knobs), "now": now, "loader": loader}


def schedule_of(start: Mapping[str, Any]) -> dict[str, ChangeAsked]:
    """The changes that ``start.json`` holds for later, by id; their times are filled in when they happen."""
    return {
        str(item["id"]): ChangeAsked(
            0.0,
            id=str(item["id"]),
            knobs=dict(item["knobs"]),
            now=item.get("when") != "epoch",
            loader=item.get("loader"),
            origin="schedule",
        )
        for item in start.get("at", ())
    }


def _asked_at(asked: ChangeAsked, at_s: float) -> ChangeAsked:
    return ChangeAsked(at_s, asked.id, asked.knobs, asked.now, asked.loader, asked.origin)


def _unknown_change(moved: ChangeMoved) -> ChangeAsked:
    """The journal lost the asking (an engine died at the wrong moment): what came into force tells it."""
    known = {name: value for name, value in (moved.in_force or {}).items() if value is not None}
    return ChangeAsked(moved.at_s, moved.id, known)


def _count(message: Message, name: str) -> int | None:
    value = message.get(name)
    return None if value is None else int(value)


def _mapping(value: Any) -> dict[str, Any] | None:
    """A copy, or TypeError: the fold must be able to rely on it."""
    return None if value is None else {str(name): item for name, item in dict(value).items()}


def _known(message: Message, name: str) -> float:
    return float(message[name]) / 1e9

"""Who speaks for a run, and what comes of it. Called by the engine with each probe message and lost connection.

Several processes of a run may speak (ranks, a launcher that only imports torch): one of them leads, and the run's
numbers are the leader's alone. A message that does not fit is counted and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cockpit.model.events import (
    ChangeAsked,
    Event,
    EventsDropped,
    KnobReport,
    LoaderInfo,
    LoadersSeen,
    ProbeConnected,
    ProbeLost,
    Sampled,
)
from cockpit.session.knobs import queued
from cockpit.session.state import State
from cockpit.session.trials import entry_of
from cockpit.wire.codec import from_plain
from cockpit.wire.framing import is_newer

from .ticks import Ticks
from .told import Message, ask_message, asked_of, block_of, connected_of, epoch_of, moved_of

Send = Callable[[Message], None]


@dataclass(eq=False)
class Probe:
    """One connected process. ``send`` queues a message to it. ``announced``: the state knows of it.

    ``order`` says who came first. ``trains``: it has trained, or said that it does.
    """

    send: Send
    order: int
    greeting: ProbeConnected
    trains: bool = False
    announced: bool = False
    loaders: tuple[LoaderInfo, ...] = ()
    kernels: tuple[KnobReport, ...] = ()

    @property
    def pid(self) -> int:
        """Its process."""
        return self.greeting.pid


class Heard(NamedTuple):
    """One message: from whom, in which state of the run, and when."""

    probe: Probe
    message: Message
    state: State
    at_s: float


@dataclass
class Ears:
    """All probes of a run, by connection.

    ``schedule`` holds the changes that ``start.json`` set for later, ``withdrawn`` those that we took back, by id.
    """

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
            key=lambda probe: (not probe.trains, probe.greeting.rank or 0, probe.order),
            default=None,
        )

    def hear(self, key: int, send: Send, message: Message, state: State, at_s: float) -> list[Event]:
        """The events that one message makes. ``key`` names the connection, ``send`` answers on it."""
        try:
            if message.get("m") == "hello" and not is_newer(message):
                return self._hello(key, send, message, state, at_s)
            probe, handle = self.probes.get(key), _HANDLERS.get(str(message.get("m")))
            if probe is not None and handle is not None:
                return handle(self, Heard(probe, message, state, at_s))
        except (TypeError, ValueError, KeyError, AttributeError):
            pass
        self.bad += 1
        return []

    def lost(self, key: int, at_s: float) -> list[Event]:
        """The connection has closed."""
        before = self.lead()
        gone = self.probes.pop(key, None)
        if gone is None or not gone.announced or any(probe.pid == gone.pid for probe in self.probes.values()):
            return []
        left = self._left_of(gone, at_s) if gone is before else []
        return [*left, ProbeLost(at_s, gone.pid), *self._lead_after(before, at_s)]

    def _left_of(self, gone: Probe, at_s: float) -> list[Event]:
        """The last figures of a rank that led and is gone, where another leads from now on (a lone one: ``end``)."""
        if not (gone.trains and self.probes and self.ticks.pending):
            return []
        span_s = self.ticks.span_s
        return [Sampled(at_s, span_s, **self.ticks.take(at_s))]

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

    def devices(self) -> tuple[str, ...]:
        """Accelerators of all processes that train, each once, as torch names them."""
        return tuple(dict.fromkeys(name for probe in self.probes.values() for name in probe.greeting.devices))

    def _hello(self, key: int, send: Send, message: Message, state: State, at_s: float) -> list[Event]:
        greeting = connected_of(message, at_s)
        before, known = self.lead(), self.probes.get(key)
        self._met += 1
        probe = self.probes[key] = known or Probe(send, self._met, greeting)
        probe.greeting = greeting
        probe.trains = probe.trains or bool(message.get("trains"))
        for entry in queued(state):
            if entry.origin != "schedule":
                send(ask_message(entry.id, entry.asked, entry.now, entry.loader))
        if not probe.trains and before is not None and before is not probe:
            return []  # a helper process beside one that we already know: not a rank
        return self._announce(probe, before, at_s)

    def _announce(self, probe: Probe, before: Probe | None, at_s: float) -> list[Event]:
        probe.announced = True
        return [replace(probe.greeting, at_s=at_s), *self._lead_after(before, at_s)]

    def _lead_after(self, before: Probe | None, at_s: float) -> list[Event]:
        lead = self.lead()
        if lead is None:
            self.ticks.end()  # its last words still count
        elif lead is not before:
            self.ticks = Ticks()
            return [LoadersSeen(at_s, lead.loaders, lead.kernels)] if lead.loaders or lead.kernels else []
        return []

    def _loaders(self, heard: Heard) -> list[Event]:
        probe, told = heard.probe, heard.message
        probe.loaders = tuple(from_plain(LoaderInfo, item) for item in told["loaders"])
        probe.kernels = tuple(from_plain(KnobReport, item) for item in told.get("kernels", ()))
        return [LoadersSeen(heard.at_s, probe.loaders, probe.kernels)] if probe is self.lead() else []

    def _tick(self, heard: Heard) -> list[Event]:
        before, events = self.lead(), list[Event]()
        if heard.message["steps"] and not heard.probe.trains:
            heard.probe.trains = True
            events = [] if heard.probe.announced else self._announce(heard.probe, before, heard.at_s)
        if heard.probe is self.lead():
            self.ticks.add(heard.message, heard.at_s)
        return events

    def _block(self, heard: Heard) -> list[Event]:
        block = block_of(heard.message, heard.at_s)
        return [block] if heard.probe is self.lead() and block.steps > 0 and block.wall_s > 0 else []

    def _epoch(self, heard: Heard) -> list[Event]:
        return [epoch_of(heard.message, heard.at_s)] if heard.probe is self.lead() else []

    def _change(self, heard: Heard) -> list[Event]:
        moved = moved_of(heard.message, heard.at_s)
        if heard.probe is not self.lead():
            return []
        entry = entry_of(heard.state, moved.id)
        if entry is not None:
            return [] if entry.state == moved.state else [moved]
        if moved.state == "dropped":
            return []
        # a scheduled change enters the ledger when its moment comes; one that we withdrew has overtaken us
        return [asked_of(self.schedule.get(moved.id) or self.withdrawn.get(moved.id), moved), moved]

    def _dropped(self, heard: Heard) -> list[Event]:
        return [EventsDropped(heard.at_s, int(heard.message["count"]))]


_HANDLERS: Mapping[str, Callable[[Ears, Heard], list[Event]]] = {
    "loaders": Ears._loaders,
    "tick": Ears._tick,
    "block": Ears._block,
    "epoch": Ears._epoch,
    "change": Ears._change,
    "dropped": Ears._dropped,
}

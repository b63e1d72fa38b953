"""Who speaks for a run, and what comes of it. Called by the engine with each probe message and lost connection.

Several processes of a run may speak (ranks, a launcher that only imports torch): one of them leads, and the run's
numbers are the leader's alone (``ranks`` tells how the others fare, ``together`` what a change comes to over all of
them). A message that does not fit is counted and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cockpit.history.knobs import queued
from cockpit.history.state import State
from cockpit.history.trials import is_restart
from cockpit.model.compiled import CompiledSeen
from cockpit.model.events import (
    ChangeAsked,
    Event,
    EventsDropped,
    KnobReport,
    LoaderInfo,
    LoadersSeen,
    ProbeLost,
    Sampled,
)
from cockpit.model.knobs import KERNEL_KNOBS
from cockpit.wire.codec import from_plain
from cockpit.wire.framing import is_newer

from .probes import Probe, Send
from .ranks import Ranks, common, mark_idle, members_of
from .ticks import Ticks
from .together import Together
from .told import (
    Message,
    ask_message,
    block_of,
    compiled_of,
    connected_of,
    epoch_of,
    handoff_of,
    identity_of,
    kept_message,
    moved_of,
    older_of,
    pause_message,
    pause_of,
    session_of,
    stacks_of,
)

KERNEL = frozenset(KERNEL_KNOBS)


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
    ``handoffs``: the training's newest word on each restart that it was told of, by id.
    """

    schedule: dict[str, ChangeAsked] = field(default_factory=dict)
    withdrawn: dict[str, ChangeAsked] = field(default_factory=dict)
    probes: dict[int, Probe] = field(default_factory=dict)
    ticks: Ticks = field(default_factory=Ticks)
    ranks: Ranks = field(default_factory=Ranks)
    handoffs: dict[str, Message] = field(default_factory=dict)
    bad: int = 0
    _met: int = 0
    _kept: set[str] = field(default_factory=set)
    _told: LoadersSeen | None = None

    def __post_init__(self) -> None:
        self._together = Together(lambda change: self.schedule.get(change) or self.withdrawn.get(change))

    def lead(self) -> Probe | None:
        """The probe whose numbers are the run's: one that trains before one that does not, then the lowest rank."""
        return min(
            self.probes.values(),
            key=lambda probe: (not probe.trains, probe.idle, probe.rank, probe.order),
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
        if gone is None or any(probe.pid == gone.pid for probe in self.probes.values()):
            return []
        self.ranks.left(gone)
        if not gone.announced:
            return []
        left = self._left_of(gone, at_s) if gone is before else []
        return [*left, ProbeLost(at_s, gone.pid), *self._lead_after(before, at_s)]

    def _left_of(self, gone: Probe, at_s: float) -> list[Event]:
        """The last figures of a rank that led and is gone, where another leads from now on (a lone one: ``end``)."""
        if not (gone.trains and self.probes and self.ticks.pending):
            return []
        span_s = self.ticks.span_s
        return [Sampled(at_s, span_s, **self.ticks.take(at_s))]

    def members(self) -> list[Probe]:
        """Those that train now, the first rank first; before anybody trains, who leads."""
        lead = self.lead()
        return members_of(self.probes.values()) or ([lead] if lead is not None else [])

    def look_again(self, state: State, at_s: float) -> list[Event]:
        """About twice a second: how all ranks fare, and what was waited for."""
        before = self.lead()
        mark_idle(self.probes.values(), at_s)
        self._tell_kept(state)
        return [
            *self._lead_after(before, at_s),
            *self.ranks.see(members_of(self.probes.values()), tuple(self.probes.values()), at_s),
            *self._together.look_again(self.members(), state, at_s),
        ]

    def _tell_kept(self, state: State) -> None:
        """Until then the training holds what it needs to take a change of its kernels back."""
        if not self.probes:
            return
        for entry in state.ledger:
            if entry.state == "kept" and entry.id not in self._kept and not KERNEL.isdisjoint(entry.asked):
                self._kept.add(entry.id)
                self.tell(kept_message(entry.id))

    def tell(self, message: Message) -> None:
        """Say something to every process that may train."""
        for probe in self.probes.values():
            probe.send(message)

    def training_pids(self) -> tuple[int, ...]:
        """Connected processes that train."""
        return tuple(probe.pid for probe in self.probes.values() if probe.trains)

    def stepping(self, since_s: float) -> tuple[int, ...]:
        """Connected processes that have made a step since then."""
        return tuple(probe.pid for probe in self.probes.values() if probe.trains and probe.stepped_s > since_s)

    def worker_pids(self) -> tuple[int, ...]:
        """Loader workers of all processes, as they report them."""
        return tuple(pid for probe in self.probes.values() for info in probe.loaders for pid in info.workers)

    def devices(self) -> tuple[str, ...]:
        """Accelerators of all processes that train, each once, as torch names them."""
        return tuple(dict.fromkeys(name for probe in self.probes.values() for name in probe.greeting.devices))

    def _hello(self, key: int, send: Send, message: Message, state: State, at_s: float) -> list[Event]:
        greeting = connected_of(message, at_s)
        early, env = tuple(str(name) for name in message.get("set_early") or ()), dict(message.get("env") or {})
        before, known = self.lead(), self.probes.get(key)
        self._met += 1
        probe = self.probes[key] = known or Probe(send, self._met, greeting)
        probe.greeting = greeting
        probe.set_early, probe.env, probe.found = early, env, dict(message.get("found") or {})
        probe.argv = tuple(str(word) for word in message.get("argv") or ())
        if self._met == 1 and state.team is not None:
            self._together.expect(frozenset(rank.pid for rank in state.team.ranks if rank.alive), at_s)
        if message.get("trains") and not probe.trains:
            self.ranks.joined(probe, self.probes.values(), at_s)
        for entry in queued(state):
            if entry.origin != "schedule" and not is_restart(entry):
                send(ask_message(entry.id, entry.asked, entry.now, entry.loader))
        if probe.trains and (paused := pause_message(state)) is not None:
            send(paused)
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
            return self._see(lead, at_s) if lead.loaders or lead.kernels else []
        return []

    def _see(self, lead: Probe, at_s: float) -> list[Event]:
        self._told = common(lead, members_of(self.probes.values()), at_s)
        return [self._told]

    def _loaders(self, heard: Heard) -> list[Event]:
        probe, told, lead = heard.probe, heard.message, self.lead()
        probe.loaders = tuple(from_plain(LoaderInfo, item) for item in told["loaders"])
        probe.kernels = tuple(from_plain(KnobReport, item) for item in told.get("kernels", ()))
        if lead is None or not (probe is lead or (probe.trains and (lead.loaders or lead.kernels))):
            return []
        if not (lead.trains or lead.loaders) and heard.state.loaders:
            return []  # whoever started the training outlives it, and has no loaders of its own
        before, found = self._told, self._see(lead, heard.at_s)
        # what another rank says matters only where it differs
        same = before is not None and self._told == replace(before, at_s=heard.at_s)
        return [] if probe is not lead and same else found

    def _tick(self, heard: Heard) -> list[Event]:
        before, events = self.lead(), list[Event]()
        if heard.message["steps"] and not heard.probe.trains:
            self.ranks.joined(heard.probe, self.probes.values(), heard.at_s)
            events = [] if heard.probe.announced else self._announce(heard.probe, before, heard.at_s)
        self.ranks.heard(heard.probe, heard.message, heard.at_s)
        if heard.probe is self.lead():
            self.ticks.add(heard.message, heard.at_s)
            events += self._compiled(heard)
        return events

    def _compiled(self, heard: Heard) -> list[Event]:
        found = compiled_of(heard.message, heard.at_s)
        known = heard.state.compiled or CompiledSeen(found.at_s)
        return [] if replace(known, at_s=found.at_s) == found else [found]

    def _block(self, heard: Heard) -> list[Event]:
        block = self._together.of_trial(block_of(heard.message, heard.at_s), heard.state)
        return [block] if heard.probe is self.lead() and block.steps > 0 and block.wall_s > 0 else []

    def _epoch(self, heard: Heard) -> list[Event]:
        return [epoch_of(heard.message, heard.at_s)] if heard.probe is self.lead() else []

    def _change(self, heard: Heard) -> list[Event]:
        moved = moved_of(heard.message, heard.at_s)
        # what was compiled before it came is not its doing
        compiled = self._compiled(heard) if "compile_ns" in heard.message and heard.probe is self.lead() else []
        return compiled + self._together.heard(heard.probe, moved, self.members(), heard.state)

    def _stacks(self, heard: Heard) -> list[Event]:
        return [stacks_of(heard.message, heard.at_s)]

    def _pause(self, heard: Heard) -> list[Event]:
        moved, known = pause_of(heard.message, heard.at_s), heard.state.pause
        return [moved] if known is not None and known.id == moved.id else []

    def _session(self, heard: Heard) -> list[Event]:
        heard.probe.session = dict(heard.message)
        seen, known = session_of(heard.message, heard.at_s), heard.state.session
        instead: list[Event] = [*older_of(heard.message, heard.state, heard.at_s)]
        return instead if known is not None and replace(known, at_s=seen.at_s) == seen else [*instead, seen]

    def _handoff(self, heard: Heard) -> list[Event]:
        self.handoffs[str(heard.message["id"])] = heard.message
        seen, known = handoff_of(heard.message, heard.at_s), heard.state.handoff
        # the answer to a wish is told again to an engine that was away
        return [] if seen is None or (known is not None and replace(known, at_s=seen.at_s) == seen) else [seen]

    def _identity(self, heard: Heard) -> list[Event]:
        seen = identity_of(heard.message, heard.at_s)
        return [seen] if heard.probe is self.lead() and seen.env != (heard.state.identity or {}) else []

    def _dropped(self, heard: Heard) -> list[Event]:
        return [EventsDropped(heard.at_s, int(heard.message["count"]))]


_HANDLERS: Mapping[str, Callable[[Ears, Heard], list[Event]]] = {
    "loaders": Ears._loaders,
    "tick": Ears._tick,
    "block": Ears._block,
    "epoch": Ears._epoch,
    "change": Ears._change,
    "stacks": Ears._stacks,
    "pause": Ears._pause,
    "session": Ears._session,
    "handoff": Ears._handoff,
    "identity": Ears._identity,
    "dropped": Ears._dropped,
}

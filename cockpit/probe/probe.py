"""The probe of one process: wires recorder, hooks, changes, link and pulse together, and lives through its moments.

Made by ``install``. It says hello when torch is imported, beats five times a second once a step has ended, starts
over in a forked child, and flushes at exit. It must stay silent in a process that does not train itself.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Any

from ..model.names import ENV_RUN, ENV_SOCKET
from . import orphans, unsent, worker_stacks
from .asks import Asks
from .batching import Batching
from .changes import Changes
from .devices import Devices
from .guard import Guard
from .handoff.live import Handoff
from .handoff.swift_end import spare_search
from .hold import Hold
from .hooks import LoaderHooks
from .identity import Identity
from .job import Job, accelerator
from .kernels.compiling import keep_apart
from .kernels.control import Kernels
from .kernels.landing import Landing
from .leaving import LEAVE_S, leave_word, place_of
from .link import Link
from .one_size import OneSize
from .patience import least_s
from .preflight import Preflight
from .pulse import PERIOD_S, Pulse
from .recorder import SHUTDOWN, Recorder
from .registry import Registry
from .reports import Blocks, Ticks, hello_message, known, loader_message, trains
from .roles import Roles
from .roots import Roots
from .stacks import Stacks
from .start import is_child, told
from .swap import LoaderControl
from .swap import install as install_mechanism
from .training import Training
from .unfed import Unfed

CHANGING = ("loaders", "swap", "changes")
"""Hooks without which no change can land."""
NO_BACKWARD = (
    "no backward() is seen in this training, though its optimizer steps (torch.func, autograd.grad): nothing tells its"
    " steps, nor which loader trains"
)
UPDATES = 20
"""Of an optimizer, without any backward: then none will come. Some step once before all else, for their state."""
ROWS_NS = 1_000_000_000
"""How often the knobs of the whole training are looked at."""


class Probe:
    """Everything of one process. Made by ``install``; tests make their own with a fake clock."""

    def __init__(self, torch: Any, environ: Any = os.environ, clock: Any = time.perf_counter_ns) -> None:
        self.torch = torch
        self.clock = clock
        self._environ, self._job = environ, Job(environ)
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        self.recorder = Recorder(clock, is_compiling)
        self.guard = Guard(is_compiling)
        self.roles = Roles()
        self.registry = Registry()
        self.mechanism = install_mechanism(torch)
        self.mechanism.run = self.guard.run
        self.mechanism.fetches = lambda: self.recorder.fetches
        self.mechanism.has_accelerator = self._has_accelerator  # type: ignore[method-assign]
        self.mechanism.patience_s = least_s(environ)
        self.asks = Asks(self.recorder)
        self.kernels = Kernels(torch, clock, self.recorder.ident, self._job.size, self.guard.run)
        keep_apart(self.recorder, self.kernels.watch)
        self.landing = Landing(self.recorder, self.asks, self.kernels)
        self.batching = Batching(torch, self.recorder, self.registry, self.asks, self.kernels)
        self.one_size = OneSize(torch, self.recorder, self.registry, self.asks, self.kernels, self.guard.run)
        self.batching.made_for, self.batching.rings = self.one_size.found, self.one_size.rings
        self.preflight = Preflight(self.asks, self.registry.records, self.guard.run)
        self.batching.no_room = lambda record, size: self.guard.run("preflight", self.preflight.too_large, record, size)
        trials = self.landing.trials
        self.asks.foretellers.append(lambda ask: self.guard.run("kernels", trials.foretell, ask))
        trials.scheduled = self.batching.schedules.are_any
        trials.on_forward = lambda: self.guard.run("kernels", trials.at_forward)
        self.stacks = Stacks(self.recorder, self.registry, self.mechanism.stuck)
        self.changes = Changes(self.recorder, self.registry, self.asks, self._control, self.landing, self.batching)
        self.hooks = LoaderHooks(
            self.recorder, self.roles, self.registry, self.changes, self.guard.run, os.path.dirname(torch.__file__)
        )
        self.hooks.epochs.news = self.asks.said  # one queue: an epoch's end and a change are told in their order
        self.unfed = Unfed(self.recorder, self.registry, self.asks, self.hooks, self.changes)
        self.training = Training(self.recorder, self.roles, self.registry, self.changes, self.hooks, self.unfed)
        self.hooks.on_boundary, self.hooks.on_batch = self.landing.at_boundary, trials.at_batch
        self.roots = Roots(torch, self.guard, self.recorder, self.roles, self.kernels.adopt)
        self.roots.on_evaluation = self.hooks.epochs.close_trailing
        self.roots.on_dynamo = self.kernels.watch.attach
        self.roots.script_compiled = self.kernels.watch.script_compiled
        self.training.on_first_backward = self._search_roots
        self.pulse = Pulse(lambda: self.guard.run("link", self.beat), self.at_exit)
        self.hold = Hold(self.recorder, self.asks.said.append, self._job.size, self.pulse.start)
        self.blocks = Blocks()
        self.devices = Devices(torch)
        self.ticks = Ticks(self.recorder)
        self.handoff = Handoff(
            torch, self.recorder, self.registry, self.hooks, self.guard, self._job.size, self.asks.said.append, environ,
            self.kernels, self._go_on,
        )  # fmt: skip
        self.identity = Identity()
        self.link = self._new_link()
        self.child = is_child()
        self._said_off = 0
        self._said_trains = self._unread = self._over = False
        self._backwards_seen = self._rows_ns = 0
        self.origin: dict[str, Any] = {}

    def _control(self, loader: Any, learnt: dict[str, Any]) -> LoaderControl:
        return LoaderControl(self.mechanism, loader, self.hooks.look_now, learnt)

    def _new_link(self) -> Link:
        return Link(self._environ.get(ENV_SOCKET, ""), self.clock, self.greeting)

    # ---- what the engine is told ----

    def greeting(self) -> list[dict[str, Any]]:
        """hello, loaders, and the last word on each change: begins every connection."""
        self._said_off = self.guard.failures
        self._said_trains = trains(self.registry.records.values()) or self.recorder.steps > 0
        hello = hello_message(str(self.torch.__version__), self._job, self._said_trains)
        hello |= {"t_ns": self.clock(), "off": dict(self.guard.reasons), "devices": list(self.devices.names)}
        told = [*self.asks.last_words(), *self.hold.last_words(), *self.handoff.last_words()]
        return [{**hello, **self.origin}, self._loaders(), *told, *self.identity.last_words()]

    def _loaders(self) -> dict[str, Any]:
        rows = self.landing.told(self.guard.reasons)
        records = self.registry.records.values()
        return loader_message(records, self._cannot_change(), rows, self.batching.row, self.preflight.of)

    def _cannot_change(self) -> str | None:
        """Why no loader can be changed any more: a hook that this needs has failed."""
        for name in CHANGING:
            if name in self.guard.reasons:
                return "the probe's own part %r has failed: %s" % (name, self.guard.reasons[name])
        return None

    def _has_accelerator(self) -> bool:
        """Asking torch outright would make CUDA unusable in children that the script forks later.

        Where the script pins by itself, torch asks anyway.
        """
        pins = any(r.script is not None and r.script.pin_memory for r in list(self.registry.records.values()))
        return accelerator() is not None or (pins and bool(self.torch.accelerator.is_available()))

    # ---- the heartbeat ----

    def beat(self) -> None:
        """In the probe's thread: tick, blocks, news; then the socket."""
        now = self.clock()
        self._adopt_stray_thread()
        self.asks.tick(now)
        self.guard.run("handoff", self.handoff.beat)
        self.guard.run("swap", self.mechanism.stuck.beat, PERIOD_S)
        reason = self._cannot_change()
        if reason is not None:
            self.asks.give_up(reason)
        elif "kernels" in self.guard.reasons:
            self.asks.give_up("the probe's own part 'kernels' has failed: %s" % self.guard.reasons["kernels"], True)
        self._gather(now)
        if (answer := self.guard.run("stacks", self.stacks.beat, now)) is not None:
            self.link.say(answer)
        if (found := self.guard.run("identity", self.identity.look, now)) is not None:
            self.link.say(found)
        self._exchange()
        self.guard.run("pause", self.hold.beat, self.link.connected, PERIOD_S)
        self.hooks.look_again(now)
        if now - self._rows_ns > ROWS_NS:
            self._rows_ns, self.recorder.awaited = now, True

    def _gather(self, now: int) -> None:
        recorder, link = self.recorder, self.link
        can_tell = known(recorder, self.guard.reasons)
        if self.guard.failures != self._said_off:
            self.changes.news = True
        if self.guard.failures != self._said_off or not self._said_trains:
            for message in self.greeting()[:1]:
                link.say(message)
        marks = []
        while recorder.done:
            marks.append(recorder.done.popleft())
        for block in self.blocks.feed(marks, can_tell):
            link.say(block)
        while self.asks.said:
            link.say(self.asks.said.popleft())
        if self.changes.news or self.landing.news or self.asks.news:
            self.changes.news = self.landing.news = self.asks.news = False
            link.say(self._loaders())
        if recorder.steps:
            link.say(self.ticks.read(now, self.hooks, can_tell, self.landing.compiled()))

    def _adopt_stray_thread(self) -> None:
        """Training has moved to another thread: watch that one."""
        recorder = self.recorder
        if recorder.backwards != self._backwards_seen:
            recorder.strays, self._backwards_seen = 0, recorder.backwards
        elif recorder.strays > 3:
            recorder.strays, recorder.thread = 0, None
            recorder.leave_steps()

    def _exchange(self) -> None:
        for message in self.link.pump():
            self.guard.run("changes", self.asks.receive, message)
            self.guard.run("kernels", self.landing.trials.hear, message)
            self.guard.run("stacks", self.stacks.receive, message)
            self.guard.run("pause", self.hold.receive, message)
            self.guard.run("handoff", self.handoff.receive, message)

    # ---- moments of the process ----

    def on_step(self) -> None:
        """A step has ended: the search for roots is over (for a while), and the thread may live."""
        if self.roots.searching:
            self.guard.run("forward", self.roots.settle)
        self.guard.run("kernels", self.landing.at_step)
        self.guard.run("forward", self.roots.look_again, self.recorder.steps, self.landing.lost)
        self.hold.at_step()
        self.guard.run("batches", self.one_size.at_step)
        looks = self.one_size.looks or self.hold.asked
        self.recorder.awaited = self.landing.waits or self.roots.searching or looks
        if self.guard.run("devices", self.devices.look, self.clock()):
            self._said_trains = False  # so that hello is said once more, with them
        if not self.is_worker():
            self.guard.run("link", self.pulse.start)

    def _go_on(self, roots: list[Any]) -> None:
        """The loop of another process goes on here, with the settings that were in force there."""
        self.guard.run("forward", self.roots.occupy, roots)
        self.landing.go_on()

    def _search_roots(self) -> None:
        """Training begins, perhaps in another thread than before: look for its roots until the next step ends."""
        self.guard.run("forward", self.roots.search)
        self.recorder.awaited = True

    def on_open(self) -> None:
        """A loader is being iterated and no thread runs yet: hear what was asked before the first step."""
        self.roots.mind_dynamo()
        if self._unread:  # a forked child that iterates a loader of its own
            self._unread = False
            self.guard.run("changes", self.asks.start, told(self._environ[ENV_RUN]))
        if not self.pulse.running and not self.child:
            self._exchange()
            recorder = self.recorder
            if not recorder.backwards and recorder.optimizer_steps >= UPDATES and "backward" not in self.guard.reasons:
                self.asks.give_up(NO_BACKWARD)
            while self.asks.said:
                self.link.say(self.asks.said.popleft())
            self._exchange()

    def is_worker(self) -> bool:
        """Whether this process is torch's loader worker: then it is inert for ever."""
        if not self.child or self.torch.utils.data.get_worker_info() is None:
            return False
        self.pulse.wanted = False
        self.recorder.thread = -1
        return True

    def before_fork(self) -> None:
        self.guard.run("link", self.pulse.stop)
        self.recorder.awaited = True

    def in_child(self) -> None:
        self.guard.run("link", self._start_over)

    def _start_over(self) -> None:
        self.child = True
        if self.mechanism.making is not None:
            self.guard.run("stacks", worker_stacks.ready)
            self.guard.run("orphans", orphans.bear, self.mechanism.making.mark)
            self.guard.run("unsent", unsent.ready, self.mechanism.making, self.mechanism.wrapper)
        self.pulse.forget()
        self.link.close()
        self.link = self._new_link()
        self.recorder.reset()
        self.hold.restart()
        self.roles.reset()
        self.unfed.reset()
        self.blocks, self.ticks = Blocks(), Ticks(self.recorder)
        self.asks.restart()
        self.landing.restart()
        self.handoff.restart()
        self.identity = Identity()
        self._unread = True

    def at_exit(self) -> None:
        """Flush what is left without waiting."""
        self.guard.run("link", self._last_words)

    def _last_words(self) -> None:
        if self._over:
            return
        self._over, self.pulse.wanted = True, False
        if self.recorder.steps or not self.child:
            word = functools.partial(leave_word, place_of(self._environ), self.recorder.steps > 0)
            words = word, self.handoff.leave_word
            self.pulse.finish(lambda: [self.guard.run("leaving", each) for each in words], LEAVE_S)
        self.pulse.stop(0.03)
        self.batching.closing = True
        self.guard.run("handoff", self.handoff.at_exit)
        self.asks.end()
        if self.recorder.steps or self.link.connected:
            for record in self.registry.training():
                stream = record.open_stream()
                if stream is not None:
                    self.hooks.epochs.left(stream)
            if self.recorder.updates:
                self.recorder.end_step(self.recorder.last_update_ns)
            self.recorder.doing, self.recorder.since = SHUTDOWN, self.clock()
            self._gather(self.clock())
        if self.recorder.steps or not self.child:
            self._exchange()
        self.link.close()
        if self.recorder.away is not None:  # another process waits for the end of this one
            self.guard.run("leaving", spare_search)

"""What the training's thread leaves behind: running totals per phase, and one tuple per ended step.

Fed by ``hooks`` and ``roots`` inside the training, so every method is a few additions; read by the probe's thread
(``reports``), which only ever reads. It never waits, never locks, and keeps no more than ``KEPT`` steps.
All times are nanoseconds of the one clock that is handed in.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

if TYPE_CHECKING:
    from .streams import Stream

LOADER, LOADER_START, FORWARD, BACKWARD, OPTIMIZER, OTHER = (
    "loader", "loader_start", "forward", "backward", "optimizer", "other",
)  # fmt: skip
KEPT = 4096
PROVISIONAL = 32
PROVISIONAL_NS = 20_000_000_000
"""Without any optimizer step seen, this many backwards (or this long) are waited for before each counts as an update."""


class Setting(NamedTuple):
    """What a step ran under; a new object each time a change lands, so that blocks never span one."""

    change: Optional[str] = None
    capacity: int = 0
    workers: int = 0


class Mark(NamedTuple):
    """The totals at one moment. ``step`` is None at the origin of a run of steps, else the step that ended here."""

    t_ns: int
    wait_ns: int
    start_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    samples: int
    unsized: int
    step: Optional[int]
    epoch: int
    setting: Setting


class Recorder:
    """The totals. ``thread`` is the training's thread: None before the first backward."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.ident = threading.get_ident
        self.on_step: Callable[[], None] = lambda: None
        self.setting = Setting()
        self.done: deque[Mark] = deque(maxlen=KEPT)
        self.reset()

    def reset(self) -> None:
        """As at the start of a process: at install, and in a forked child."""
        self.thread: int | None = None
        self.strays = 0
        self.doing, self.since = OTHER, self.clock()
        self.charged = 0
        self.wait = self.start = self.forward = self.backward = self.optimizer = 0
        self.samples = self.unsized = 0
        self.steps = self.optimizer_steps = self.backwards = 0
        self.updates = 0
        self.last_update_ns = 0
        self.optimizer_seen = self.forward_seen = False
        self.own_optimizer = False
        self.loaderless = self.read_ahead = False
        self.epoch = self.step_in_epoch = 0
        self.stream: Stream | None = None
        self.inside = False
        self.base: Mark | None = None
        self.rest = self.mark(self.since)
        """The totals when the last gap began."""
        self.carry = 0
        """Loader work of the gap (shutting an iterator down) that the next first step has to pay for."""
        self.lived_ns = 0
        self.provisional: list[Mark] = []
        self.provisional_since = 0
        self.attention = False
        self.due_step = -1
        self._optimizer_began = (0, 0)
        self.done.clear()

    # ---- steps ----

    def mark(self, t_ns: int, step: int | None = None) -> Mark:
        """The totals as they are, said to be those of ``t_ns``."""
        return Mark(
            t_ns, self.wait, self.start, self.forward, self.backward, self.optimizer,
            self.samples, self.unsized, step, self.epoch, self.setting,
        )  # fmt: skip

    def begin(self, base: Mark) -> None:
        """A run of steps begins at ``base``: everything before it belonged to no step."""
        carry, self.carry = self.carry, 0
        base = base._replace(
            t_ns=base.t_ns - carry, start_ns=base.start_ns - carry, epoch=self.epoch, setting=self.setting
        )
        self.base = base
        self.provisional.clear()
        self.done.append(base)

    def leave_steps(self, t_ns: int, closing_ns: int = 0) -> None:
        """A gap begins at ``t_ns``: what follows until the next ``begin`` belongs to no step.

        ``closing_ns`` of loader work charged after ``t_ns`` are carried over to the next first step.
        """
        if self.base is not None:
            self.lived_ns += max(0, t_ns - self.base.t_ns)
            self.base = None
            rest = self.mark(t_ns)
            self.rest = rest._replace(start_ns=rest.start_ns - closing_ns)
            self.carry = closing_ns
        self.updates = 0

    def end_step(self, now: int) -> None:
        """A step with at least one update has ended at ``now``; written flat since it runs every step."""
        base = self.base
        self.updates = 0
        if base is None:
            return
        sure = self.optimizer_seen or self.own_optimizer
        mark = Mark(
            now, self.wait, self.start, self.forward, self.backward, self.optimizer,
            self.samples, self.unsized, self.steps if sure else None, self.epoch, self.setting,
        )  # fmt: skip
        if sure:
            self.done.append(mark)
            self.lived_ns += now - base.t_ns
            self.base = mark
            self.steps += 1
            self.step_in_epoch += 1
            if self.stream is not None:
                self.stream.steps += 1
            if self.steps >= self.due_step >= 0:
                self.attention = True
        else:
            self._provisional(mark)
        self.on_step()

    def _provisional(self, mark: Mark) -> None:
        """No optimizer step seen yet: is this gradient accumulation, or an optimizer that we cannot see?"""
        if not self.provisional:
            self.provisional_since = mark.t_ns
        self.provisional.append(mark)
        if len(self.provisional) >= PROVISIONAL or mark.t_ns - self.provisional_since > PROVISIONAL_NS:
            self.decide_own_optimizer()

    def decide_own_optimizer(self) -> None:
        """From now on each backward counts as an update; the steps that waited for this are counted now."""
        if self.optimizer_seen or not self.provisional:
            return
        self.own_optimizer = True
        for mark in self.provisional:
            self.done.append(mark._replace(step=self.steps))
            self.steps += 1
            self.step_in_epoch += 1
            if self.stream is not None:
                self.stream.steps += 1
        last = self.provisional[-1]
        if self.base is not None:
            self.lived_ns += last.t_ns - self.base.t_ns
            self.base = last
        self.provisional.clear()

    # ---- phases: called with when the call began and what had been charged then ----

    def forward_left(self, began: int, charged: int) -> None:
        now = self.since = self.clock()
        own = now - began - (self.charged - charged)
        self.charged += own
        self.forward += own

    def backward_left(self, began: int, charged: int) -> None:
        now = self.since = self.clock()
        own = now - began - (self.charged - charged)
        self.charged += own
        self.backward += own
        self.backwards += 1
        if not self.optimizer_seen:
            self.updates += 1
            self.last_update_ns = now

    def optimizer_entered(self) -> None:
        self._optimizer_began = (self.clock(), self.charged)
        self.doing, self.since = OPTIMIZER, self._optimizer_began[0]

    def optimizer_left(self) -> None:
        began, charged = self._optimizer_began
        now = self.since = self.last_update_ns = self.clock()
        self.doing = OTHER
        own = now - began - (self.charged - charged)
        self.charged += own
        self.optimizer += own
        self.optimizer_steps += 1
        if self.optimizer_seen:
            self.updates += 1
        else:
            self.optimizer_seen = True
            self.updates = 1
            self.provisional.clear()

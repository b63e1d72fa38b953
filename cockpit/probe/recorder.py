"""What the training's thread leaves behind: running totals per phase, and one tuple per ended step.

Fed by ``hooks`` and ``roots`` inside the training, so every method is a few additions; read by the probe's thread
(``reports``), which only ever reads. It never waits, never locks, and keeps no more than ``KEPT`` steps.
All times are nanoseconds of the one clock that is handed in.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import deque
from typing import Any, Callable, NamedTuple

LOADER, LOADER_START, LOADER_END, FORWARD, BACKWARD, OPTIMIZER, OTHER, SAVE, SHUTDOWN, PAUSE = (
    "loader", "loader_start", "loader_end", "forward", "backward", "optimizer", "other", "save", "shutdown", "paused",
)  # fmt: skip
KEPT = 4096
PROVISIONAL = 32
PROVISIONAL_NS = 20_000_000_000
"""With an optimizer that was made and never stepped, so many backwards are waited for, or so long."""


class Setting(NamedTuple):
    """What a step ran under; a new object each time a change lands, so that blocks never span one."""

    change: str | None = None
    capacity: int = 0
    workers: int = 0


class Mark(NamedTuple):
    """The totals at one moment. ``step`` is None at the origin of a run of steps, else the step that ended here.

    ``lived_ns`` is the wall time of all steps up to here, gaps between epochs left out. ``unsized`` counts batches
    whose length is not known.
    """

    t_ns: int
    lived_ns: int
    wait_ns: int
    start_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    samples: int
    unsized: int
    step: int | None
    epoch: int
    setting: Setting


def sums_of(mark: Mark) -> tuple[int, ...]:
    """The totals of ``mark`` alone: wait, start, forward, backward, optimizer, samples, unsized."""
    return (
        mark.wait_ns, mark.start_ns, mark.forward_ns, mark.backward_ns, mark.optimizer_ns, mark.samples,
        mark.unsized,
    )  # fmt: skip


class Recorder:
    """The totals. ``thread`` is the training's thread: None before the first backward."""

    def __init__(self, clock: Callable[[], int], is_compiling: Callable[[], bool]) -> None:
        self.clock = clock
        self.is_compiling = self.is_traced = is_compiling
        self.has_optimizer: Callable[[], bool] = lambda: True
        """Whether any of torch's optimizers was ever made: only then is a first step of one worth waiting for."""
        self.ident = threading.get_ident
        self.on_step: Callable[[], None] = lambda: None
        self.away: Callable[[str], None] | None = None
        """Once another process is this training: told of what is done here all the same."""
        self.done: deque[Mark] = deque(maxlen=KEPT)
        self.reset()

    def reset(self) -> None:
        """As at the start of a process: at install, and in a forked child."""
        self.thread: int | None = None
        self.strays = 0
        self.awaited = True
        """Whether somebody (``on_step``) waits for the end of a step."""
        self.doing, self.since = OTHER, self.clock()
        self.charged = 0
        self.wait = self.start = self.forward = self.backward = self.optimizer = 0
        self.samples = self.unsized = self.fetches = 0
        self.steps = self.optimizer_steps = self.backwards = 0
        self.updates = 0
        self.last_update_ns = 0
        self.optimizer_seen = self.own_optimizer = False
        self.forward_seen = self.forward_steps = False
        self.loaderless = self.read_ahead = False
        self.epoch = 0
        """So many have ended: the number of the one that runs, or of the next."""
        self.latest_epoch: tuple[int, int | None] = (0, 0)
        """The one that was last trained in, over or not, and its first step; None where another process made that."""
        self.inside = False
        self.setting = Setting()
        self.base: Mark | None = None
        self.skipped: tuple[int, ...] = (0,) * 7
        """What was charged in gaps, and so belongs to no step, in the order of ``Mark``."""
        self.rest: Mark | None = self.mark(self.since)
        """The totals when the last gap began; None outside a gap. ``told`` holds both, to be read at once."""
        self.told: tuple[Mark | None, tuple[int, ...]] = (self.rest, self.skipped)
        self.carry = 0
        """Loader work of the gap (shutting an iterator down) that the next first step has to pay for."""
        self.apart_ns = 0
        """All that was left out so far."""
        self.hold = False
        """Whether a step has ended since a pause was asked for: the next safe place takes it."""
        self.held_since: int | None = None
        """While it is paused: since when."""
        self.left_out: list[tuple[int, int]] = []
        """What was left out while it was open which step it would have belonged to."""
        self.trailing: Any = None
        self.trailing_from = 0
        """A used-up stream whose last batches are still to be trained on (frameworks read ahead)."""
        self.last_forward: Mark | None = None
        """Where the newest forward outside all steps began: where steps begin if it turns out that they do."""
        self.provisional: list[Mark] = []
        self.attention = False
        self.due_step = -1
        self.has_forward = False
        """While a step ends where the first forward of the next has been: its backward needs things as they are."""
        self.trial: Any = None
        """The change of the kernels that settles, which looks on at each backward."""
        self.on_backward: Any = None
        """Told of what each backward begins from, while another batch size is asked for."""
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self.stepped: dict[int, int] = {}
        """How many backwards there were at the newest step of each, by the id of the optimizer."""
        self._optimizer_began = (0, 0, OTHER)
        self.optimizer_depth = 0
        self.done.clear()

    # ---- steps ----

    def mark(self, t_ns: int, lived_ns: int = 0, step: int | None = None) -> Mark:
        """The totals as they are, said to be those of ``t_ns``."""
        return Mark(
            t_ns, lived_ns, self.wait, self.start, self.forward, self.backward, self.optimizer,
            self.samples, self.unsized, step, self.epoch, self.setting,
        )  # fmt: skip

    def begin(self, base: Mark) -> None:
        """A run of steps begins at ``base``: what was charged between the last gap's beginning and it is nobody's."""
        if self.rest is None:
            return
        carry, self.carry = self.carry, 0
        late = sum(spent_ns for at_ns, spent_ns in self.left_out if at_ns >= base.t_ns)
        self.left_out.clear()
        base = base._replace(
            t_ns=base.t_ns - carry + late, start_ns=base.start_ns - carry, lived_ns=self.rest.lived_ns,
            epoch=self.epoch, setting=self.setting,
        )  # fmt: skip
        between = (b - r for b, r in zip(sums_of(base), sums_of(self.rest)))
        self.skipped = tuple(s + d for s, d in zip(self.skipped, between))
        self.provisional.clear()
        self.base, self.rest = base, None
        self.told = (None, self.skipped)
        self.done.append(base)

    def leave_steps(self, closing_ns: int = 0) -> None:
        """A gap begins with the end of the last step: what follows until the next ``begin`` belongs to no step.

        ``closing_ns`` of loader work charged since then are carried over to the next first step.
        """
        if self.base is not None:
            self.rest = self.base
            self.told = (self.rest, self.skipped)
            self.base = None
            self.carry = closing_ns
        self.updates = 0

    def end_step(self, now: int) -> None:
        """A step with at least one update has ended at ``now``; written flat since it runs every step."""
        base = self.base
        self.updates = self.optimizer_depth = 0
        if base is None:
            return
        sure = self.optimizer_seen or self.own_optimizer
        mark = Mark(
            now, base.lived_ns + now - base.t_ns, self.wait, self.start, self.forward, self.backward,
            self.optimizer, self.samples, self.unsized, self.steps if sure else None, self.epoch, self.setting,
        )  # fmt: skip
        if sure:
            self.done.append(mark)
            self.base = mark
            self.steps += 1
            if self.steps >= self.due_step >= 0:
                self.attention = True
        else:
            self.provisional.append(mark)
            waited_ns = mark.t_ns - self.provisional[0].t_ns
            enough = len(self.provisional) >= PROVISIONAL or waited_ns > PROVISIONAL_NS
            if enough or not self.has_optimizer():
                self.decide_own_optimizer()
        if self.awaited:
            self.on_step()

    def next_of_trailing(self) -> bool:
        """A forward after an update: whether it is for the next of several batches that a used-up stream has left.

        Told by how many backwards a step had while the loader still said where steps end.
        """
        stream = self.trailing
        if stream is None or stream.behind < 2 or self.backwards - self.trailing_from < stream.per_step:
            return False
        stream.behind -= 1
        self.trailing_from = self.backwards
        return True

    def trailing_done(self) -> bool:
        """Whether all that was left of the used-up stream has been trained on, as far as backwards can tell."""
        stream = self.trailing
        return bool(self.backwards - self.trailing_from >= stream.behind * stream.per_batch)

    def leave_out(self, spent_ns: int) -> None:
        """``spent_ns`` that have just passed (compiling) belong to no phase and to no step."""
        self.charged += spent_ns
        self.apart_ns += spent_ns
        if self.base is not None:
            self.base = self.base._replace(t_ns=self.base.t_ns + spent_ns)
        else:
            self.left_out.append((self.clock(), spent_ns))

    def apart_at(self, now: int) -> int:
        """All that was left out up to ``now``, a pause under way with it: another thread may look meanwhile."""
        since = self.held_since
        return self.apart_ns + (max(0, now - since) if since is not None else 0)

    def decide_own_optimizer(self) -> None:
        """No optimizer step was ever seen, so this is not accumulation: each backward is an update.

        The steps that waited for this are counted now.
        """
        if self.optimizer_seen or not self.provisional:
            return
        self.own_optimizer = True
        for mark in self.provisional:
            self.done.append(mark._replace(step=self.steps))
            self.steps += 1
        if self.base is not None:
            self.base = self.provisional[-1]
        self.provisional.clear()

    # ---- the optimizer: torch's own hooks for all optimizers, with nothing in them that could fail ----

    def before_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.is_traced():
            return
        self.optimizer_depth += 1
        if id(optimizer) not in self._optimizers:
            forget = functools.partial(_forget, (self._optimizers, self.stepped), id(optimizer))
            self._optimizers[id(optimizer)] = weakref.ref(optimizer, forget)
        if self.optimizer_depth > 1:
            return  # a step that calls its parent's, or wraps another optimizer: one step
        was, self.doing, self.since = self.doing, OPTIMIZER, self.clock()
        self._optimizer_began = (self.since, self.charged, was)

    def after_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.is_traced():
            return
        self.stepped[id(optimizer)] = self.backwards
        self.optimizer_depth -= 1
        if self.optimizer_depth > 0:
            return
        if self.optimizer_depth < 0:  # its beginning was compiled by the script: counted, and not timed
            self.optimizer_depth, self._optimizer_began = 0, (self.clock(), self.charged, self.doing)
        began, charged, self.doing = self._optimizer_began
        now = self.since = self.last_update_ns = self.clock()
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

    def living_optimizers(self) -> list[Any]:
        """Those that were ever seen to step, and are still there."""
        return [optimizer for ref in list(self._optimizers.values()) if (optimizer := ref()) is not None]


def _forget(known: tuple[dict[int, Any], ...], number: int, _: Any) -> None:
    for each in known:
        each.pop(number, None)

"""Brings asks for kernel knobs into force, in the training's thread, between two steps; and says what was found then.

``at_boundary`` is called at a training loader's ``__iter__``, ``at_step`` at the end of a step for as long as
``waits``; ``plan`` and ``ride`` let a change of loaders carry kernel knobs along. The newest change is on trial until
it is kept (``trials``). It must never act in another thread than the training's, and never call a
change settled before a whole step has run under it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ...model.knobs import SCRIPT, Value
from ..groups import Refused
from ..recorder import Recorder
from ..row import Row
from .control import Kernels
from .setting import RolledBack
from .trials import Trials

LOOK_NS = 1_000_000_000
"""So often the rows are renewed while nothing but a trial needs the ends of steps."""


class Landing:
    """``asks`` is the probe's ``Asks``: ``waiting``, ``move``, ``forget``, and whether an ask ``is_due``."""

    def __init__(self, recorder: Recorder, asks: Any, kernels: Kernels) -> None:
        self._recorder = recorder
        self._asks = asks
        self.kernels = kernels
        self._pending: list[Any] = []
        self._back: dict[str, Any] = {}
        self._settling: deque[tuple[Any, int]] = deque()
        self._last: list[Any] = []
        self._reasons: dict[str, str] = {}
        self.rows: tuple[Row, ...] = ()
        self.news = False
        kernels.bypassed = lambda: self._bypassed
        asks.compiled = kernels.watch.found
        self._bypassed = False
        self.lost = False
        """Whether steps went by in which no known module was called: the script trains another one now."""
        self._looked_at = 0
        self._roots_seen: int | None = None
        self._joined = False
        """Whether a module has joined since the look before: the next step shows what it runs under."""
        self.give_back: Callable[[Any, str], bool] = lambda ask, reason: False
        """Has the loaders give back their part of a change whose kernel part failed; whether any has it."""
        self.trials = Trials(recorder, kernels, self._gone_back)
        self._coming: Any = None
        self._looked_ns = 0

    def restart(self) -> None:
        """In a forked child nothing is on its way."""
        self.trials.restart()
        self._pending.clear()
        self._settling.clear()
        self._last.clear()
        self.kernels.watch.restart()

    def compiled(self) -> Any:
        """What torch has compiled so far, for a tick. What is compiled while a change comes into force is told after it
        was said to come: it is that change's doing, not the one's before. Called in any thread."""
        coming = self._coming
        return self.kernels.watch.found() if coming is None else coming

    # ---- when ----

    def _alone(self) -> list[Any]:
        """Asks for kernel knobs only; others are led by their loader knobs."""
        return [ask for ask in list(self._asks.waiting) if ask.kernels and not ask.knobs]

    @property
    def waits(self) -> bool:
        """Whether the end of the next step matters here."""
        return self._busy or self._recorder.trial is not None

    @property
    def _busy(self) -> bool:
        pending = self._settling or self._pending or self._back or self._asks.kernel_set or self._joined
        gone = self._roots_seen not in (None, len(self.kernels.roots))  # another model, or one less
        return bool(pending or gone or self._alone())

    def at_boundary(self, record: Any, thread: int) -> None:
        """A training loader is about to begin an epoch, in ``thread``."""
        due = [ask for ask in self._alone() if ask not in self._pending and self._asks.is_due(ask, record)]
        if self._recorder.thread == thread:
            self._land(due)
        else:
            self._pending += due  # read ahead: the training's own thread takes it at its next step

    def at_step(self) -> None:
        """A step has ended, in the training's thread."""
        recorder = self._recorder
        self.trials.at_step()
        if recorder.trial is not None and not self._busy and recorder.clock() - self._looked_ns < LOOK_NS:
            return
        self._tell_settled()
        start, self._asks.kernel_set = self._asks.kernel_set, {}  # from the start: now the modules are known
        back, self._back = self._back, {}
        self._put((*start.items(), *back.items()))
        now = [ask for ask in self._alone() if ask not in self._pending and self._is_due_now(ask)]
        pending, self._pending = self._pending, []
        self._land([ask for ask in pending if ask.state == "queued"] + now)
        self.look()

    def go_on(self) -> None:
        """Before the first step of a process that goes on from another: what was in force there is, if its modules are
        known. In the training's thread."""
        start, can_all = self._asks.kernel_set, bool(self.kernels.roots)
        now = {name: value for name, value in start.items() if can_all or name in self.kernels.setters}
        self._asks.kernel_set = {name: value for name, value in start.items() if name not in now}
        self._put(now.items())

    def _put(self, settings: Iterable[tuple[str, Value]]) -> None:
        for name, value in settings:
            try:
                self.kernels.land({name: value})
            except Refused as error:
                self._reasons[name] = error.reason

    def _is_due_now(self, ask: Any) -> bool:
        recorder = self._recorder
        if ask.due is None:
            return bool(ask.now or (recorder.loaderless and not recorder.read_ahead))
        when, n = ask.due
        return bool(
            (when == "step" and recorder.steps >= n)
            or (when == "time" and (recorder.clock() - self._asks.began_ns) / 1e9 >= n)
        )

    # ---- landing ----

    def _land(self, asks: list[Any]) -> None:
        for ask in asks:
            if ask.due is None and self.kernels.stands(ask.kernels):
                self._asks.move(ask, "dropped")  # asked again while it was landing, which nobody could see
                continue
            began = self._recorder.clock()
            try:
                self.ride(ask)
            except Refused as error:
                self.refuse(ask, error.reason)
                continue
            ask.stall_ns += self._recorder.clock() - began
            self._recorder.setting = self._recorder.setting._replace(change=ask.id)
            self._asks.move(ask, "applying")
            self._asks.forget(ask)

    def plan(self, ask: Any) -> None:
        """Raises Refused where the kernel part of ``ask`` cannot be had."""
        if ask.kernels:
            self.kernels.plan(ask.kernels)

    def stands(self, ask: Any) -> bool:
        """Whether the kernel part of ``ask`` would change nothing."""
        return self.kernels.stands(ask.kernels)

    def refuse(self, ask: Any, reason: str) -> None:
        self._reasons.update(dict.fromkeys(ask.kernels, reason))
        self._asks.move(ask, "refused", reason)

    def ride(self, ask: Any) -> None:
        """The kernel part of ``ask`` comes into force now; raises Refused, and then nothing has changed."""
        ask.former, ask.compiled = self._recorder.setting.change, self.kernels.watch.found()
        self._coming = ask.compiled
        try:
            before = self.kernels.land(ask.kernels)
            self.trials.begin(ask)
        finally:
            self._coming = None
        for name in ask.kernels:
            self._reasons.pop(name, None)
            ask.before.setdefault(name, before.get(name))
        self._last.append(ask)
        self._settling.append((ask, self._recorder.steps))

    def take_back(self, ask: Any) -> None:
        """The loader part of ``ask`` was rolled back: its kernel part goes back too, when the next step ends."""
        ridden = {name: ask.before[name] for name in ask.kernels if name in ask.before}
        if ridden:
            self._back.update({name: SCRIPT if value is None else value for name, value in ridden.items()})
            self._settling = deque(pair for pair in self._settling if pair[0] is not ask)
            self.trials.end(ask)
            self._recorder.awaited = True

    # ---- what was found ----

    def _tell_settled(self) -> None:
        for notice in self.kernels.take_notices():
            self._roll_back(notice)
        rows = {row.name: row for row in self.kernels.reports()}
        while self._settling and self._settling[0][1] < self._recorder.steps:
            ask, _ = self._settling.popleft()
            nothing = self.kernels.compiled_nothing(ask.kernels)
            if nothing is not None:
                self.trials.give_back(ask)
                self._gone_back(ask, nothing)
                continue
            ask.in_force.update({name: rows[name].in_force for name in ask.kernels})
            ask.kernels_found = True
            if ask.state == "applying" and (ask.looked or not ask.knobs):
                self._asks.move(ask, "settling", None if ask.knobs else self.kernels.no_effect(ask.kernels))
        del self._last[:-8]

    def _roll_back(self, notice: RolledBack) -> None:
        changed = [
            name for name in notice.failed._fields if getattr(notice.failed, name) != getattr(notice.setting, name)
        ]
        for ask in reversed(self._last):
            if not set(ask.kernels) & set(changed):
                continue
            self._gone_back(ask, notice.reason)
            break
        self._reasons.update(dict.fromkeys(changed, notice.reason))

    def _gone_back(self, ask: Any, reason: str) -> None:
        """Its kernel part is not in force any more: its loaders' follows, and it is told."""
        self.trials.end(ask)
        self._last = [other for other in self._last if other is not ask]
        self._settling = deque(pair for pair in self._settling if pair[0] is not ask)
        rows = {row.name: row.in_force for row in self.kernels.reports()}
        ask.in_force.update({name: rows[name] for name in ask.kernels})
        self._reasons.update(dict.fromkeys(ask.kernels, reason))
        if ask.knobs and self.give_back(ask, reason):
            return
        stays = "; in force all the same: %s" % ", ".join(ask.knobs) if ask.knobs else ""
        self._asks.move(ask, "rolled_back", reason + stays)
        self._recorder.setting = self._recorder.setting._replace(change=ask.former)

    def told(self, failed: Mapping[str, str]) -> tuple[Row, ...]:
        """The rows; where this part itself has ``failed``, nothing can be changed, and why."""
        if "kernels" not in failed:
            return self.rows
        reason = "the probe's own part 'kernels' has failed: %s" % failed["kernels"]
        return tuple(row._replace(can=False, can_now=False, reason=reason) for row in self.rows)

    def look(self) -> None:
        """What is in force, for the rows. Called in the training's thread, about once a second."""
        self.kernels.watch.attach()
        self._looked_ns = self._recorder.clock()
        self.trials.look_at_risk()
        roots, steps = self.kernels.roots, self._recorder.steps
        if steps > self._looked_at:
            self._looked_at = steps
            self.lost = not any(root.called for root in roots)
            self._bypassed = bool(roots) and self.lost
            for root in roots:
                root.called = False
        seen, self._roots_seen = self._roots_seen, len(roots)
        self._joined = seen is not None and len(roots) > seen
        for root in roots:
            if root.idle:
                root.look()
        rows = tuple(row._replace(reason=row.reason or self._reasons.get(row.name)) for row in self.kernels.reports())
        if rows != self.rows:
            self.rows, self.news = rows, True

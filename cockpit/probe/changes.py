"""Lands changes on loaders, in the thread that iterates them, and reports what was really found in force.

Called by the hooks at the entry of ``__iter__`` (boundary), at the entry of ``__next__`` (now) and after the first
batches that follow. It must never act anywhere else, never say that something is in force that was not found so,
and never keep a loader or an iterator. What gives way again is told by ``rollbacks``.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from ..model.knobs import SCRIPT, Value
from .anew import forks
from .asks import Ask, Asks, of_group
from .batching import BATCH, Batching, NotYet
from .endings import Endings
from .groups import Group, Refused, script_group
from .kernels.batches import ONLY_BOUNDARY
from .recorder import Recorder, Setting
from .registry import Registry
from .rollbacks import Rollbacks
from .streams import OTHER, LoaderRecord, Stream


class Changes:
    """``news`` is set when something about a loader has changed. ``kernels`` lands what rides along with a change."""

    def __init__(
        self,
        recorder: Recorder,
        registry: Registry,
        asks: Asks,
        make_control: Callable[[Any, dict[str, Any]], Any],
        kernels: Any,
        batching: Batching,
    ) -> None:
        self._kernels = kernels
        self._batching = batching
        self._rollbacks = Rollbacks(recorder, registry, asks, batching, kernels)
        self.epoch_over = Endings(batching.epoch_over).over
        self._recorder = recorder
        self._registry = registry
        self._asks = asks
        self._make_control = make_control
        self.news = False
        self._plans: dict[int, tuple[Any, Group | None, int | None]] = {}

    # ---- the boundary ----

    def opener(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What stands in for ``DataLoader.__iter__`` inside the guard: this thread's plan, or the original."""
        plans, ident, registry = self._plans, self._recorder.ident, self._registry

        @functools.wraps(original)
        def planned_iter(self: Any) -> Any:
            control, group, own_size = plans.pop(ident(), (None, None, None))
            opens = registry.opening(self, original)
            return opens(self) if control is None else control.open(opens, group, own_size)

        return planned_iter

    def at_boundary(self, stream: Stream, loader: Any, fresh: bool) -> None:
        """Entry of ``__iter__``: plan what this iterator is opened with."""
        record = stream.record
        self._plans.pop(stream.thread, None)
        if record.stream is not None:  # what landed on its very last batch is still to be looked at
            stream.landing, record.stream.landing = record.stream.landing, []
        if fresh:
            self._meet(record, loader)
        asks, wanted = self._asks.for_loader(record), record.wanted
        if not asks and record.group is None and not wanted:
            return
        control = self._control(record, loader)
        if record.group is None or wanted != record.planned_for:  # its role may have come out since
            record.group, record.planned_for = self._plan_all(record, control), wanted
        # a DataLoader made anew at a known place has run nothing yet: what its place would have given it is before
        before = record.group if fresh and record.stream is not None else control.in_force
        landing, group = [], record.group
        for ask in asks:
            if self._is_already(ask, record):
                self._asks.move(ask, "dropped")
                continue
            try:
                self._kernels.plan(ask)
                planned = control.plan(ask.group_knobs, base=group)
                self._batching.plan(ask, record)
            except NotYet:
                continue
            except Refused as error:
                self._refuse(ask, record, error.reason)
            else:
                group = planned
                landing.append(ask)
        asked = dict(record.asked)
        if landing:
            self._land(landing, stream, before, group, record.stream)
        self._batching.open(record, landing, asked)
        self._rollbacks.at_boundary(record)
        self._plans[stream.thread] = (control, *self._batching.cut(record, record.group))

    def opened(self, stream: Stream, loader: Any, iterator: Any, planned: bool) -> None:
        """After ``__iter__``: the loader's control, which outlives the loader for as long as the iterator does."""
        control = stream.control = self._control(stream.record, loader)
        if not planned:
            control.opened_untouched(loader, iterator)

    def planned(self, stream: Stream) -> bool:
        """Whether ``__iter__`` goes through the mechanism."""
        return stream.thread in self._plans

    def _meet(self, record: LoaderRecord, loader: Any) -> None:
        """A DataLoader object not seen before; its place may be known, and then it inherits what was asked."""
        record.control, record.group = None, None
        record.kind = "iterable" if loader._dataset_kind else "map"
        record.script, record.forks = script_group(loader), forks(loader)
        if not record.iterators:
            record.start_set = self._asks.start_set
            record.named_set = self._asks.start_loaders.get(record.id, {})
        self._batching.meet(record, loader)
        self.news = True

    def _control(self, record: LoaderRecord, loader: Any) -> Any:
        record.control = self._registry.control_of(loader, lambda each: self._make_control(each, record.learnt))
        return record.control

    def _plan_all(self, record: LoaderRecord, control: Any) -> Group:
        """Everything wanted of this place, on top of what the script says; workers first, the rest needs them."""
        group: Group = script_group(record.alive())
        wanted = of_group(record.wanted)
        for name in sorted(wanted, key=lambda name: name != "num_workers"):
            knobs: dict[str, Value] = {name: wanted[name]}
            try:
                group = (control.plan_again if name in record.asked else control.plan)(knobs, base=group)
            except Refused as error:
                record.reasons[name] = error.reason
        return group

    # ---- now ----

    def concerns(self, stream: Stream) -> bool:
        """Whether anything may land on this stream at its next batch."""
        return stream.trains or any(ask.loader == stream.record.id for ask in list(self._asks.waiting))

    def at_next(self, stream: Stream, iterator: Any) -> None:
        """Entry of ``__next__`` with something waiting: swap if an ask wants it now."""
        asks, control = [ask for ask in self._asks.for_loader(stream.record) if ask.now], stream.control
        again = bool(asks) and control is not None and self._swap(asks, stream, iterator, control)
        self._asks.look_ahead(again)

    def _swap(self, asks: list[Ask], stream: Stream, iterator: Any, control: Any) -> bool:
        """Whether to ask again at the next batch: the last swap still drains."""
        record, recorder = stream.record, self._recorder
        began = recorder.clock()
        landing, group = [], record.group or control.in_force
        for ask in asks:
            if self._is_already(ask, record):
                self._asks.move(ask, "dropped")
                continue
            try:
                self._kernels.plan(ask)
                if BATCH in ask.knobs:
                    raise Refused(ONLY_BOUNDARY)
                group = control.plan(ask.knobs, base=group, now=True)
                landing.append(ask)
            except Refused as error:
                self._rather_later(ask, record, control, group, error.reason)
        if not landing:
            return False
        before = control.in_force
        try:
            done = control.swap(iterator, group)
        except Refused as error:
            for ask in landing:
                self._rather_later(ask, record, control, record.group or control.script, error.reason)
            return False
        stream.stalled_ns += (stall := recorder.clock() - began)  # the look before it included
        if done is None:
            return True
        for ask in landing:
            ask.stall_ns += stall
            ask.drain, ask.capacity = done.drain, done.capacity
        self._land(landing, stream, before, group)
        if done.failed:
            self.take_notices(record, control)
        return False

    def _is_already(self, ask: Ask, record: LoaderRecord) -> bool:
        """Whether nothing would change: asked for before anybody could see what is in force, or while it landed."""
        if ask.due is not None or ask.undoes is not None or ask.done_on or not self._kernels.stands(ask):
            return False
        for loader in [record] if ask.loader is not None else self._registry.training():
            asked = {name: value for name, value in ask.knobs.items() if value != SCRIPT or name in loader.wanted}
            for group in (loader.in_force, loader.group or loader.script):
                values = None if group is None else self._batching.values(group, loader)
                if values is None or any(values[name] != value for name, value in asked.items()):
                    return False
        return True

    def _rather_later(self, ask: Ask, record: LoaderRecord, control: Any, base: Group, reason: str) -> None:
        """It cannot be had now; at the boundary, perhaps."""
        try:
            self._kernels.plan(ask)
            control.plan(ask.group_knobs, base=base)
            self._batching.foresee(ask)
        except Refused as error:
            self._refuse(ask, record, error.reason)
            return
        ask.now = False
        for name in ask.knobs:
            record.reasons[name] = reason
        self.news = True

    def _refuse(self, ask: Ask, record: LoaderRecord, reason: str) -> None:
        for name in ask.knobs:
            record.reasons[name] = reason
        self.news = True
        self._rollbacks.refuse(ask, reason)

    # ---- landing, and what was found ----

    def _land(
        self, landing: list[Ask], stream: Stream, before: Group, group: Group, former: Stream | None = None
    ) -> None:
        """``former``: at a boundary, the iterator that this one follows."""
        record = stream.record
        record.last_landing = (list(landing), dict(record.asked))
        record.reasons.clear()
        values = self._batching.values(before, record)
        for ask in landing:
            for name in ask.knobs:
                ask.before.setdefault(name, values[name])
            record.asked.update(ask.knobs)
            ask.done_on.add(record.id)
            if ask.state == "queued":
                self._rollbacks.landed(ask)
                if ask.kernels:
                    self._kernels.ride(ask)
                self._asks.move(ask, "applying")
            if not self._others_to_come(ask, former):
                self._asks.forget(ask)
            elif former is not None:
                ask.now, ask.due = False, None  # it lands on the others whenever they come to a boundary
        record.group, record.planned_for = group, record.wanted
        stream.landing = stream.landing + landing
        if record.role != OTHER:
            self._recorder.setting = Setting(landing[-1].change, group.capacity, group.num_workers)

    def _others_to_come(self, ask: Ask, former: Stream | None = None) -> bool:
        """Whether another training loader that is in use has still to take this change.

        In use is one that is being iterated, or was in the epoch that ``former`` served: the iterators of zipped
        loaders end together, before the first of the loaders begins again.
        """
        if ask.loader is not None:
            return False
        others = [r for r in self._registry.training() if r.id not in ask.done_on]
        return any(
            r.open_stream() is not None
            or (former is not None and r.stream is not None and r.stream.first_step >= former.first_step)
            for r in others
        )

    def looked_at(self, stream: Stream, iterator: Any, took_ns: int = 0) -> None:
        """After a batch that took so long: what is really in force, and was anything rolled back?"""
        record, control = stream.record, stream.control
        if control is None:
            return
        self.take_notices(record, control, took_ns)
        found, workers = control.in_force_now(iterator), tuple(control.workers(iterator))
        if (found, workers) != (record.in_force, record.workers) or not record.refusals:
            record.in_force, record.workers, record.capacity = found, workers, found.capacity
            record.script = control.script
            record.refusals = control.refusals()
            self.news = True
        self._refresh_setting()
        self.news = self._batching.foresee_epoch(stream, record) or self.news
        landing, stream.landing = stream.landing, []
        for ask in landing:
            if ask.state == "applying":
                ask.stall_ns = ask.stall_ns or stream.start_ns
                ask.capacity = found.capacity
                values = self._batching.values(found, record)
                ask.in_force.update({name: values[name] for name in ask.knobs})
                ask.looked = not self._others_to_come(ask)
                if ask.looked and (ask.kernels_found or not ask.kernels):
                    self._asks.move(ask, "settling")

    def take_notices(self, record: LoaderRecord, control: Any, took_ns: int = 0) -> None:
        """Roll-backs that the mechanism has made on its own, told as soon as the batch after them."""
        self.news = self._rollbacks.take_notices(record, control, took_ns) or self.news

    def _refresh_setting(self) -> None:
        """The capacity and workers that steps run under: the largest among the loaders that train."""
        training = [r for r in self._registry.training() if r.in_force is not None]
        if training:
            setting = self._recorder.setting
            capacity = max(r.capacity for r in training)
            workers = max(r.in_force.num_workers for r in training)
            if (setting.capacity, setting.workers) != (capacity, workers):
                self._recorder.setting = Setting(setting.change, capacity, workers)

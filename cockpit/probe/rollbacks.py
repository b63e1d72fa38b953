"""Changes of loaders that gave way: what the mechanism rolled back, what a loader refused that others had taken.

Called by ``changes``, in the thread that iterates, and by ``batching`` at an epoch's end. It must never leave one half
of a change in force while saying that the change is gone.
"""

from __future__ import annotations

from typing import Any

from ..model.knobs import SCRIPT
from .asks import Ask, Asks
from .batching import BATCH, Batching
from .groups import Group
from .outcomes import Notice
from .recorder import Recorder, Setting
from .registry import Registry
from .streams import OTHER, LoaderRecord


class Rollbacks:
    """``kernels`` lands what rode along with a change, and takes it back."""

    def __init__(self, recorder: Recorder, registry: Registry, asks: Asks, batching: Batching, kernels: Any) -> None:
        self._recorder = recorder
        self._registry = registry
        self._asks = asks
        self._batching = batching
        self._kernels = kernels
        self._former: dict[str, str | None] = {}  # by change that has landed: what steps ran under before it
        self._parked: dict[str, str] = {}  # by loader: the change whose batch size runs on to the boundary
        batching.rolled_back = self._epoch_failed
        kernels.give_back = self.give_back

    def landed(self, ask: Ask) -> None:
        """``ask`` comes into force now."""
        self._former[ask.id] = self._recorder.setting.change

    def refuse(self, ask: Ask, reason: str) -> None:
        """A loader cannot take ``ask``; those that have taken it give it back."""
        taken = bool(ask.done_on)
        self._asks.move(ask, "rolled_back" if taken else "refused", reason)
        if taken:
            self._kernels.take_back(ask)
            self._take_back([ask])

    def take_notices(self, record: LoaderRecord, control: Any, took_ns: int = 0) -> bool:
        """Roll-backs that the mechanism made on its own; whether there were any.

        ``took_ns``: how long the training waited for the batch with which they came.
        """
        notices = control.take_notices()
        for notice in notices:
            self._gave_way(record, notice, took_ns)
        return bool(notices)

    def _gave_way(self, record: LoaderRecord, notice: Notice, took_ns: int) -> None:
        """Takes back what has landed last, but not what has changed nothing: that is in force as before."""
        gone = notice.failed.changed_to(notice.in_force)
        record.group = notice.in_force.alone
        if BATCH in gone:
            self._batching.went_back(record, notice.in_force.batch_size)
        landed, former = record.last_landing or ((), {})
        asks, record.last_landing = [ask for ask in landed if gone & set(ask.knobs)], None
        if asks:
            stay = {name: value for ask in landed if ask not in asks for name, value in ask.knobs.items()}
            record.asked = {**former, **stay}
        values = self._batching.values(record.group, record)
        record.reasons.update(dict.fromkeys(gone & set(record.wanted), notice.reason))
        other = {name for name in gone if record.wanted.get(name, SCRIPT) != values[name]}
        asks += self._lost_with(record, other, notice.failed)
        record.planned_for = record.wanted
        for ask in asks:
            ask.stall_ns += took_ns
            ask.in_force.update({name: values[name] for name in ask.knobs})
            record.reasons.update(dict.fromkeys(ask.knobs, notice.reason))
            self._asks.move(ask, "rolled_back", notice.reason)
            self._kernels.take_back(ask)
        self._take_back(asks)
        if asks and record.role != OTHER:
            self._resume(record, asks, notice.in_force)

    def _lost_with(self, record: LoaderRecord, names: set[str], failed: Group) -> list[Ask]:
        """Earlier changes of ``names`` where the way back led past them too; what was set from the start goes with
        them."""
        lost = {name for name in names if record.wanted.get(name, SCRIPT) != SCRIPT}
        asks = [
            ask
            for ask in list(self._asks.by_id.values())
            if ask.state == "settling" and record.id in ask.done_on
            if any(
                name in lost and value in (record.asked.get(name), getattr(failed, name))
                for name, value in ask.knobs.items()
            )
        ]
        given = {name for ask in asks for name in ask.knobs}
        record.asked = {name: value for name, value in record.asked.items() if name not in lost | given}
        record.start_set = {name: value for name, value in record.start_set.items() if name not in lost}
        record.named_set = {name: value for name, value in record.named_set.items() if name not in lost}
        return asks

    def give_back(self, ask: Ask, reason: str) -> bool:
        """The kernel part of ``ask`` failed: its loaders go back too, at their next batch where they can.

        Only then is it said that the change is gone; steps until then are nobody's. False: no loader has it any more.
        """
        self._asks.forget(ask)
        backs = list[Ask]()
        for record in list(self._registry.records.values()):
            if record.last_landing is None or ask not in record.last_landing[0]:
                continue
            start = record.start_set if record.role != OTHER else {}
            former = {**dict.fromkeys(ask.knobs, SCRIPT), **start, **record.named_set, **record.last_landing[1]}
            knobs = {name: former[name] for name, value in ask.knobs.items() if record.asked.get(name) == value}
            if knobs:
                back = Ask("%s~%d" % (ask.id, len(backs)), knobs, True, record.id)
                back.undoes, back.change = (ask, reason), self._former.get(ask.id)
                backs.append(back)
        if not backs:
            return False
        ask.backs = {back.id for back in backs}
        self._recorder.setting = self._recorder.setting._replace(change=ask.id + "~")
        self._asks.waiting += backs
        self._asks.look_ahead()
        return True

    def _resume(self, record: LoaderRecord, asks: list[Ask], group: Any) -> None:
        """Steps run again under what they ran under before; where the batch size stays, not before the boundary."""
        change, gone = self._former.get(asks[0].id), {ask.id for ask in asks}
        while change in gone:
            change = self._former.get(change)
        if any(BATCH in ask.knobs for ask in asks) and self._batching.waits_to_go_back(record):
            self._parked[record.id], change = asks[0].id, asks[0].id
        self._recorder.setting = Setting(change, group.capacity, group.num_workers)

    def at_boundary(self, record: LoaderRecord) -> None:
        """The batch size that was rolled back in the middle of an epoch has gone back by now."""
        parked = self._parked.pop(record.id, None)
        if parked is not None:
            self._leave(parked)

    def _epoch_failed(self, record: LoaderRecord, ask: Ask, reason: str) -> None:
        """The whole epoch under a batch size was not what the loop should have seen."""
        if ask.state in ("applying", "settling"):
            self._asks.move(ask, "rolled_back", reason)
        self._leave(ask.id)
        self._kernels.take_back(ask)
        record.last_landing = None
        self._take_back([ask])

    def _leave(self, change: str) -> None:
        setting = self._recorder.setting
        if setting.change == change:
            self._recorder.setting = setting._replace(change=self._former.get(change))

    def _take_back(self, asks: list[Ask]) -> None:
        """Loaders that took the change before this one failed give it back at their next boundary."""
        for other in list(self._registry.records.values()):
            if other.last_landing is not None and any(ask in other.last_landing[0] for ask in asks):
                (_, other.asked), other.last_landing = other.last_landing, None

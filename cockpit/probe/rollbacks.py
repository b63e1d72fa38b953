"""Changes of loaders that gave way: what the mechanism rolled back, what a loader refused that others had taken.

Called by ``changes``, in the thread that iterates, and by ``batching`` at an epoch's end. It must never leave one half
of a change in force while saying that the change is gone.
"""

from __future__ import annotations

from typing import Any

from ..model.knobs import SCRIPT
from .asks import Ask, Asks
from .batching import BATCH, Batching
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
            record.group = notice.in_force
            if record.last_landing is None:
                record.reasons.update(dict.fromkeys(record.wanted, notice.reason))
                record.start_set = record.named_set = record.planned_for = {}
                continue
            (asks, record.asked), record.last_landing = record.last_landing, None
            record.planned_for = record.wanted
            values = self._batching.values(notice.in_force, record)
            for ask in asks:
                ask.stall_ns += took_ns
                ask.in_force.update({name: values[name] for name in ask.knobs})
                record.reasons.update(dict.fromkeys(ask.knobs, notice.reason))
                self._asks.move(ask, "rolled_back", notice.reason)
                self._kernels.take_back(ask)
            self._take_back(asks)
            if record.role != OTHER:
                self._resume(record, asks, notice.in_force)
        return bool(notices)

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
        change = self._former.get(asks[0].id)
        if any(BATCH in ask.knobs for ask in asks):
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

"""Batch sizes of the loaders: what the loop was seen to do, when a size may land, and the trial of its first epoch.

Called by ``changes`` at a loader's ``__iter__`` and at an epoch's end, in the thread that iterates; ``row`` and
``foresee`` run in the probe's own thread and read plain numbers only. It must never let a size stand under which
the loop did not see every sample.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ..model.knobs import SCRIPT, Value
from .asks import Ask, Asks
from .callers import asker_of, framework_of, is_bar
from .groups import Group, Refused
from .kernels.batches import BatchSize, Facts
from .kernels.setters import compiles
from .passes import batches_of
from .recorder import Recorder
from .registry import Registry
from .row import Row
from .schedules import Schedules
from .streams import OTHER, TRAIN, LoaderRecord, Stream

BATCH = "batch_size"
SURE_STEPS = 3
TOGETHER = 2
"""Batches of each of two loaders, trained on while both are open: they make up steps together."""
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class NotYet(Refused):
    """It stays queued: its moment has not come."""


class Trial(NamedTuple):
    """What the next whole epoch decides on: the asks that brought a size (none: it was set from the start), and what
    had been asked before them."""

    asks: tuple[Ask, ...]
    asked: Mapping[str, Value]


class Batching:
    """``rolled_back`` is told of each ask that a trial has taken back, and with which reason."""

    def __init__(self, torch: Any, recorder: Recorder, registry: Registry, asks: Asks, kernels: Any) -> None:
        self._torch = torch
        self._folder = os.path.dirname(torch.__file__) + os.sep
        self._recorder = recorder
        self._registry = registry
        self._asks = asks
        self._kernels = kernels
        self.schedules = Schedules()
        self.made_for: Mapping[int, str] = {}
        self.rings: Mapping[int, tuple[int, str]] = {}
        """By size: why the loop takes no other, where that was seen."""
        self.no_room: Callable[[LoaderRecord, int], str | None] = lambda record, size: None
        """Why the machine has no room for batches of a size."""
        self.rolled_back: Callable[[LoaderRecord, Ask, str], None] = lambda record, ask, reason: None
        self.closing = False
        """The process ends: an epoch that is cut short now says nothing about its batch size."""
        asks.foresee = self.foresee

    # ---- what is known ----

    def meet(self, record: LoaderRecord, loader: Any) -> None:
        """A DataLoader object not seen before, at its first ``__iter__``."""
        record.batch = self._registry.batch_of(loader, functools.partial(BatchSize, self._torch))
        if record.accepted is None:  # else its place goes on with what ran there last
            makes = loader if loader.batch_size is not None else loader.batch_sampler
            record.batch_size = getattr(makes, "batch_size", None) if _is_torchs(makes) else None
        self._look(record, loader)
        if record.batch.whole is None:
            record.batches_per_epoch = record.batch.batches(record.batch.in_force)
        else:
            record.batches_per_epoch = batches_of(loader)

    def _look(self, record: LoaderRecord, loader: Any) -> None:
        """What only the thread that iterates may look at."""
        record.framework = framework_of(self._folder, _OURS)
        record.shared = record.batch.whole is None and self._registry.shares_batches(loader)
        record.batch.look()

    def facts(self, record: LoaderRecord, boundary: bool = False) -> Facts:
        """What the loop over this loader has been seen to do; ``boundary``: its next epoch is about to begin."""
        open_one = record.open_stream()
        return Facts(
            used_up=record.used_up,
            framework=record.framework,
            asked_length=record.asked_length,
            batch_norm=self._kernels.batch_norm,
            open_iterators=open_one is not None and open_one.batches > 0,
            world=self._kernels.world(),
            zipped=self._shares_steps(record),
            shared=record.shared,
            compiled=compiles(),
            ends_after=self.schedules.ends_after(self._recorder.steps),
            made_for=self.made_for.get(record.batch.in_force),
            ring=self.rings.get(record.batch.in_force),
            # who asks in every epoch has not yet had the time to do so in this one
            kept_length=record.lengths.kept(record.iterators if boundary else record.iterators - 1),
            unminded=record.control.whole if record.control is not None else None,
        )

    def length_asked(self, loader: Any, *_: Any) -> None:
        """Entry of ``DataLoader.__len__``: what was made of a length does not follow a change of it.

        Who may decide something by it counts for more than who shows it.
        """
        asker = None if self._registry.asks_again(loader) else asker_of(self._folder, _OURS)
        if asker is not None:
            self._registry.length_asked(loader, asker, not is_bar(asker.words))

    def left_length(self, token: Any, result: Any, error: BaseException | None) -> None:
        """Nothing to leave."""

    def _shares_steps(self, record: LoaderRecord) -> bool:
        """Whether another training loader served the steps of this one's last epoch too, or serves its present ones."""
        if record.role == OTHER:
            return False  # evaluated in the middle of an epoch: it makes up no step
        own, (first, until) = record.open_stream(), record.span
        for other in list(self._registry.records.values()):
            stream = other.stream
            if other is record or other.role != TRAIN or stream is None:
                continue
            if own is not None and not stream.ended and min(own.consumed, stream.consumed) >= TOGETHER:
                return True
            if first <= stream.first_step < until or (not stream.ended and stream.first_step < until):
                return True
        return False

    def wanted(self, record: LoaderRecord) -> Value:
        """The size that this loader should have; what is set from the start for all is meant for those that train."""
        start = record.start_set if record.role == TRAIN or record.handed is not None else {}
        return {**start, **record.named_set, **record.asked}.get(BATCH, SCRIPT)

    def waiting(self, record: LoaderRecord) -> Value | None:
        """The newest size that was asked for and waits for its moment."""
        for ask in reversed(list(self._asks.waiting)):
            meant = ask.loader == record.id or (ask.loader is None and record.role == TRAIN)
            if BATCH in ask.knobs and ask.due is None and meant and record.id not in ask.done_on:
                return ask.knobs[BATCH]
        start = {**(record.start_set if record.role != OTHER else {}), **record.named_set}.get(BATCH, SCRIPT)
        over = start in (SCRIPT, record.batch.in_force) or BATCH in record.asked
        return None if over else start

    def row(self, record: LoaderRecord, off: str | None) -> Row:
        """What is told of its batch size."""
        batch, facts, waiting = record.batch, self.facts(record), self.waiting(record)
        refusal = batch.refusal(facts)
        size = batch.script if waiting == SCRIPT else waiting
        note = batch.note(size, facts) if refusal.can else None
        reason = off or record.reasons.get(BATCH) or refusal.reason
        return Row(BATCH, batch.script, batch.in_force, refusal.can and off is None, False, reason, note, size)

    def values(self, group: Group, record: LoaderRecord) -> dict[str, Any]:
        """What is in force at a loader's place, by knob."""
        return {**group._asdict(), BATCH: record.batch_size}

    def foresee_epoch(self, stream: Stream, record: LoaderRecord) -> bool:
        """How many steps the first epoch will have, once it shows that each batch makes one; whether that is news."""
        if record.steps_per_epoch is None and record.batches_per_epoch is not None:
            steps = self._recorder.steps - stream.first_step
            if steps >= SURE_STEPS and stream.batches - steps <= 2:  # the one at work, and one read ahead
                record.steps_per_epoch = record.batches_per_epoch
                return True
        return False

    # ---- asking ----

    def foresee(self, ask: Ask) -> None:
        """Refuses at once what no boundary will change; raises Refused."""
        for record in list(self._registry.records.values()):
            meant = ask.loader == record.id or (ask.loader is None and record.role == TRAIN)
            if BATCH in ask.knobs and meant and record.batch is not None:
                record.batch.check(ask.knobs[BATCH], self.facts(record)._replace(used_up=True, open_iterators=False))

    def plan(self, ask: Ask, record: LoaderRecord) -> None:
        """At a boundary: raises Refused where this loader cannot take the size, NotYet where it may later."""
        if BATCH in ask.knobs:
            self._size(record, ask.knobs[BATCH])

    def _size(self, record: LoaderRecord, value: Value, again: bool = False) -> int:
        batch = record.batch
        self._look(record, record.alive())
        facts = self.facts(record, boundary=True)
        if again:  # a loader made anew at a place whose loop has shown already that it takes this size
            facts = facts._replace(used_up=True, framework=None, zipped=False, ends_after=None, kept_length=())
        size: int = batch.check(value, facts)
        if size == batch.in_force or size == batch.script:
            return size
        if facts.used_up is None:
            raise NotYet(batch.refusal(facts).reason or "")
        reason = None if again else self._kernels.too_large(size, batch.largest) or self.no_room(record, size)
        if reason is not None:
            raise Refused(reason)
        return size

    # ---- in force ----

    def open(self, record: LoaderRecord, landing: list[Ask], former_asked: Mapping[str, Value]) -> None:
        """The iterator that is about to be made serves what is wanted. ``landing`` are asks that were planned."""
        batch, value = record.batch, self.wanted(record)
        if value == SCRIPT and batch.in_force == batch.script:
            if batch.in_force is not None:  # else whoever makes the batches has said it, or nobody knows
                record.batch_size = batch.in_force
            return
        asks = tuple(ask for ask in landing if BATCH in ask.knobs)
        if record.handed == value and record.accepted is None:
            record.accepted = value
        from_start = not asks and record.accepted is None
        try:
            size = self._size(record, value, again=not from_start)
        except NotYet:
            return
        except Refused as error:
            self._never_from_start(record, error.reason)
            return
        if size == batch.in_force:
            record.batch_size = size
            return
        steps, per_epoch = record.steps_per_epoch, record.batches_per_epoch
        # else it goes back after a roll-back, or on to a loader that was made anew
        on_trial = from_start or bool(asks)
        batch.open(size, watch=on_trial)
        record.accepted = value
        if on_trial:
            record.trial = Trial(asks, dict(former_asked))
        record.batch_size, record.batches_per_epoch = size, batch.batches(size)
        # where each batch makes a step, the epoch's length is known before it has been seen
        record.steps_per_epoch = record.batches_per_epoch if steps == per_epoch else None

    def cut(self, record: LoaderRecord, group: Group) -> tuple[Group, int | None]:
        """``group`` with the size that its batches are cut to where that is another, and the script's own size."""
        batch = record.batch
        other = batch.in_force if batch.in_force != batch.script else None
        return group._replace(batch_size=other), batch.script

    def waits_to_go_back(self, record: LoaderRecord) -> bool:
        """Whether the size in force is not wanted any more, and stays until the boundary."""
        value = self.wanted(record)
        return bool(record.batch.in_force != (record.batch.script if value == SCRIPT else value))

    def went_back(self, record: LoaderRecord, size: int | None) -> None:
        """What loads batches of the size in force has failed: in the middle of the epoch they are of ``size`` again
        (None: the script's own). What such an epoch shows is no size's."""
        record.batch.give_way(record.batch.script if size is None else size)
        record.trial, record.accepted = None, size
        self._counts_anew(record)

    def _counts_anew(self, record: LoaderRecord) -> None:
        batch = record.batch
        record.batch_size, record.batches_per_epoch = batch.in_force, batch.batches(batch.in_force)
        record.steps_per_epoch = None

    def _never_from_start(self, record: LoaderRecord, reason: str) -> None:
        record.reasons[BATCH] = reason
        record.start_set = {name: value for name, value in record.start_set.items() if name != BATCH}
        record.named_set = {name: value for name, value in record.named_set.items() if name != BATCH}

    def epoch_over(self, stream: Stream) -> None:
        """An iterator of a loader is used up or left. Runs wherever it was dropped: a few stores only."""
        record, batch = stream.record, stream.record.batch
        looked_only = not stream.consumed and record.role != OTHER
        if record.stream is not stream or not stream.batches or looked_only or self.closing or batch is None:
            return
        record.used_up, record.span = stream.used_up, (stream.first_step, self._recorder.steps)
        trial, record.trial = record.trial, None
        reason = batch.ended(None if stream.unsized else stream.samples, stream.used_up)
        if reason is not None:
            self._give_back(record, trial, reason)

    def _give_back(self, record: LoaderRecord, trial: Trial | None, reason: str) -> None:
        batch = record.batch
        record.accepted = record.asked.get(BATCH) if trial is None else trial.asked.get(BATCH)
        self._counts_anew(record)
        if trial is None or not trial.asks:
            self._never_from_start(record, reason)
            return
        for ask in trial.asks:
            for name, value in ask.knobs.items():
                if record.asked.get(name) == value and name in trial.asked:
                    record.asked[name] = trial.asked[name]
                elif record.asked.get(name) == value:
                    del record.asked[name]
            ask.in_force[BATCH] = batch.in_force
            self.rolled_back(record, ask, reason)
        record.reasons[BATCH] = reason


def _is_torchs(maker: Any) -> bool:
    """Whether this loader or batch sampler means by its ``batch_size`` what torch does."""
    return type(maker).__module__ == "torch.utils.data.sampler" or hasattr(maker, "batch_sampler")

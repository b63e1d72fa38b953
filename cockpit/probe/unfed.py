"""A training that goes on without asking its loader for more: one batch for ever, ``itertools.cycle``, a warm-up.

Asked by ``training`` at backwards that no batch has preceded, and told by the hooks when a training loader begins
anew. Steps then go by forward (or backward), as in a training without a loader, until something is fetched again. It
must never take a loop for one that reads no more while an iterator of its lives: that loop only makes many updates of
each batch.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from .asks import Ask
from .groups import Refused
from .recorder import Recorder
from .registry import Registry
from .streams import TRAIN, LoaderRecord

PATIENCE, PER_BATCH, LOOK_EVERY = 60, 4, 20
"""So many updates without a fetch, with every iterator of the training gone, may be one batch's own affair, or a phase
after an epoch: four for each batch that it was fed. A loop that then comes back is given four times what it took."""


class Unfed:
    """``patience`` is in updates; ``words`` say why no knob of a loader does anything now, None while one feeds."""

    def __init__(self, recorder: Recorder, registry: Registry, asks: Any, hooks: Any, changes: Any) -> None:
        self._recorder = recorder
        self._registry = registry
        self._hooks = hooks
        self._changes = changes
        self._asks = asks
        self._further: Callable[[Ask], None] = asks.foresee
        asks.foresee, hooks.on_fetch = self.foresee, self.fetches
        self.reset()

    def reset(self) -> None:
        """At install and in a forked child."""
        self.patience = PATIENCE
        self.words: str | None = None
        self._since = self._at_step = 0

    # ---- in the training's thread ----

    def look(self) -> bool:
        """At a backward, ``patience`` updates or more after the last fetch: whether nobody will fetch any more.

        The updates up to here have made no step, and never do: how many steps they were nobody can know.
        """
        recorder = self._recorder
        if recorder.updates % LOOK_EVERY or recorder.loaderless or recorder.read_ahead:
            return False
        if recorder.updates < PER_BATCH * self._last_fed():
            return False
        if recorder.trailing is not None:
            if not recorder.trailing_done():
                return False
            self._hooks.epochs.close_trailing()
        since = self._done() - recorder.updates
        if not self.all_left():
            return False
        self._since = since
        recorder.leave_steps()
        recorder.loaderless, recorder.forward_steps = True, False
        return True

    def _last_fed(self) -> int:
        """Batches that the training got in the epoch before, or in one that it has left."""
        streams = (record.stream for record in list(self._registry.records.values()) if record.role == TRAIN)
        return max((stream.batches for stream in streams if stream is not None), default=0)

    def all_left(self) -> bool:
        """Whether there were training loaders and the script holds no iterator of any: then that is told."""
        records = [record for record in list(self._registry.records.values()) if record.role == TRAIN]
        if not records or not all(_is_left(record) for record in records):
            return False
        self._since, self._at_step = self._done(), self._recorder.steps
        self.words = "this training has fetched nothing since step %d: no loader feeds it" % self._at_step
        for record in records:
            record.unfed = self.words
            if record.stream is None or record.stream.iterator() is None:
                record.workers = ()
        self._hooks.queue, self._changes.news = None, True
        return True

    def fetches(self) -> None:
        """A training loader begins anew, in the training's thread."""
        recorder = self._recorder
        if self.words is None:
            self.patience = max(self.patience, PER_BATCH * recorder.updates)
            return
        self.patience = max(self.patience, PER_BATCH * (self._done() - self._since))
        if recorder.updates:
            recorder.end_step(recorder.last_update_ns)
        recorder.leave_steps()
        recorder.loaderless = False
        self.over()

    def over(self) -> None:
        """A loader feeds the training again, or another one does."""
        if self.words is not None:
            self.words = None
            for record in list(self._registry.records.values()):
                record.unfed = None
            self._changes.news = True

    def _done(self) -> int:
        """Updates so far."""
        return self._recorder.optimizer_steps if self._recorder.optimizer_seen else self._recorder.backwards

    # ---- anywhere ----

    def foresee(self, ask: Ask) -> None:
        """Refuses what no loader will take; raises Refused. What waited already is given some time more."""
        words, record = self.words, self._registry.records.get(ask.loader or "")
        if words is not None and ask.knobs and ask.due is None:
            waits = ask in self._asks.waiting and self._recorder.steps - self._at_step < 2 * PATIENCE
            if not waits and (ask.loader is None or (record is not None and record.unfed is not None)):
                raise Refused(words)
        self._further(ask)


def _is_left(record: LoaderRecord) -> bool:
    """Whether the script holds no iterator of this loader: a persistent one may be held by the loader alone."""
    iterator = None if record.stream is None else record.stream.iterator()
    if record.stream_is_gone() or getattr(record.alive(), "_iterator", None) is not iterator:
        return record.stream_is_gone()
    alone = object()  # interpreters count differently
    return sys.getrefcount(iterator) - sys.getrefcount(alone) == 1

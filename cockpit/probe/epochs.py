"""The end of iterators: when an epoch is over, which updates were still its own, and what it served.

Called by the hooks and by ``training``, in the script's thread (``left`` wherever an iterator is dropped). Many loops
read ahead: their last batches are trained on after the loader has said that there are no more. Such a stream is
*trailing* until something else begins. It must never count an epoch in which nothing was trained.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .passes import pass_of
from .recorder import Recorder
from .registry import Registry
from .roles import Roles
from .streams import OTHER, UNKNOWN, LoaderRecord, Stream


class Epochs:
    """``news`` are ``epoch`` messages for the engine; ``changes`` is told of each stream that has ended."""

    def __init__(self, recorder: Recorder, roles: Roles, registry: Registry, changes: Any, run: Any) -> None:
        self._recorder = recorder
        self._roles = roles
        self._registry = registry
        self._changes = changes
        self._run = run
        self.news: deque[dict[str, Any]] = deque()

    # ---- the first backward on one ----

    def begun(self, stream: Stream) -> None:
        """Training on ``stream`` has begun: an epoch, or a part of one where several loaders serve it."""
        recorder, record = self._recorder, stream.record
        stream.first_trained(recorder.backwards)
        if stream.lead > 1 and stream.thread == recorder.thread:
            self._run("swap", self._ahead, stream, record.alive())
        epoch, first_step = record.epochs_before + record.epochs, stream.first_step
        known, since = recorder.latest_epoch
        if epoch > known or (epoch == known and first_step > (since or 0)):
            recorder.latest_epoch = (epoch, first_step)

    # ---- one pass of an iterator that may go on ----

    def _ahead(self, stream: Stream, loader: Any) -> None:
        """The loop has read ahead: with the last batches of a pass it makes steps that no fetch ends."""
        length = pass_of(loader) if loader is not None else None
        stream.pass_length = stream.pass_end = length if length is not None and length > stream.lead else 0

    def pass_over(self, stream: Stream) -> None:
        """With this batch the loader has handed out as many as it has: where nothing more is fetched, some are held.

        Nobody hears of the end where one iterator serves all epochs, or where the loop counts the batches.
        """
        recorder = self._recorder
        stream.pass_end += stream.pass_length
        steps, batches = recorder.steps - stream.first_step, stream.batches - stream.lead
        if stream.trains and stream.thread == recorder.thread and steps > 0 and batches > 0:
            backwards = recorder.backwards - stream.backwards + 1
            # at least as many as any usual step has: one with more, now and then, is no two
            stream.per_step, stream.per_batch = -(-backwards // steps), max(1, backwards // batches)
            stream.behind, recorder.trailing, recorder.trailing_from = stream.lead, stream, recorder.backwards

    def fetched_again(self, stream: Stream) -> None:
        """A training loader's next batch is asked for: what tells again where steps end."""
        if self._recorder.trailing is not stream:
            self.close_trailing()
        self._recorder.trailing = None

    # ---- the loader has no more ----

    def used_up(self, stream: Stream, began: int, now: int) -> None:
        """StopIteration, from ``began`` to ``now``: the epoch is over, unless batches are still to be trained on."""
        recorder = self._recorder
        stream.used_up = True
        if stream.trains and stream.thread == recorder.thread:
            stream.behind = stream.still_to_train(recorder.backwards)
        if not stream.behind:
            self.ended(stream, began, now)
            return
        stream.record.lead = max(stream.lead, 2)
        stream.per_step = (recorder.backwards - stream.backwards + 1) // max(1, recorder.steps - stream.first_step)
        recorder.trailing, recorder.trailing_from = stream, recorder.backwards

    def trained_after_all(self, stream: Stream) -> None:
        """A backward shows that a stream that was used up before it was known to train is being trained on only now."""
        if stream.used_up and stream.record.stream is stream and stream.thread == self._recorder.thread:
            stream.ended, stream.behind = False, stream.batches
            self._recorder.trailing = stream

    def close_trailing(self) -> None:
        """Something else begins: what was read ahead has been trained on."""
        stream = self._recorder.trailing
        if stream is not None and (stream.used_up or stream.iterator() is None):
            self._recorder.trailing = None
            self.left(stream)

    def late_step(self, record: LoaderRecord, now: int) -> None:
        """At a loader's ``__iter__``: an update has come after which no batch of it was asked for.

        Where the script takes ``next(iter(loader))`` in each step, here is where the next one is asked for. Where the
        last iterator was used up, the step has ended with its update and a gap has followed; so too where it is still
        held: Lightning counts the batches, never meets the end, and lets go only when it has the next iterator.
        """
        recorder, former = self._recorder, record.stream
        if former is None or not (former.used_up or not record.stream_is_gone()):
            recorder.end_step(now)
            return
        before = recorder.steps
        recorder.end_step(recorder.last_update_ns)
        if former.used_up:
            recorder.leave_steps()
            if record.steps_per_epoch is not None:
                record.steps_per_epoch += recorder.steps - before

    # ---- the script has left it ----

    def left(self, stream: Stream) -> None:
        """The script will not come back to this stream: its last step ended with the last update."""
        recorder = self._recorder
        self.ended(stream, recorder.last_update_ns if recorder.updates else stream.entered)

    def ended(self, stream: Stream, at_ns: int, closed_ns: int = 0) -> None:
        """The stream is used up or left: its steps end at ``at_ns``; closing it took until ``closed_ns``."""
        if not stream.ended:
            stream.ended = True
            self._close(stream, at_ns, closed_ns)
            self._run("swap", self._changes.epoch_over, stream)

    def _close(self, stream: Stream, at_ns: int, closed_ns: int) -> None:
        recorder = self._recorder
        if not stream.trains:
            if recorder.backwards:
                self.tell_others()
            return
        others = any(s.trains and s is not stream and not s.ended for s in self._roles.recent)
        if not others and stream.thread == recorder.thread:
            if recorder.updates and recorder.base is not None:
                recorder.end_step(at_ns)
            recorder.decide_own_optimizer()
            recorder.leave_steps(max(0, closed_ns - at_ns))
        # read ahead, the training is some batches behind: what was served is all that can be said
        steps = stream.batches if stream.record.read_ahead else recorder.steps - stream.first_step
        if steps and stream.batches:
            self._count(stream, steps, max(at_ns, closed_ns))

    def _count(self, stream: Stream, steps: int, until_ns: int) -> None:
        recorder, record = self._recorder, stream.record
        samples = None if stream.unsized else stream.samples
        self.news.append({
            "m": "epoch", "loader": record.id, "epoch": record.epochs, "steps": steps, "samples": samples,
            "wall_ns": until_ns - stream.opened_ns - (recorder.apart_at(until_ns) - stream.apart_ns),
            "start_ns": stream.start_ns, "whole": stream.change == recorder.setting.change,
        })  # fmt: skip
        record.epochs += 1
        record.steps_per_epoch = steps
        if samples is not None:
            record.samples_by_epoch.append(samples)
        # loaders that serve the same steps make one epoch of them, loaders that take turns one each
        epoch = record.epochs_before + record.epochs
        recorder.epoch = max(recorder.epoch, epoch)
        self._changes.news = True

    def tell_others(self) -> None:
        """Something trains: loaders that have served, and it was not for that, are others. Before, nobody can tell."""
        for record in list(self._registry.records.values()):
            stream = record.stream
            if record.role == UNKNOWN and stream is not None and stream.batches and self._is_done(stream):
                record.role = OTHER
                self._changes.news = True

    def _is_done(self, stream: Stream) -> bool:
        """It has ended, or has handed out nothing for some backwards: a framework may hold it for ever."""
        roles = self._roles
        return stream.ended or (stream not in roles.recent and stream.interval < roles.interval - 1)

"""What happens at each patched place of the data loader and of backward, in the script's thread.

``install`` puts these methods round torch's functions through the guard; they time, count, tell loaders apart,
and let ``changes`` act at the two moments where it may: entry of ``__iter__`` and entry of ``__next__``.
They must stay short (a step may cost twelve Python calls in all) and never touch what the script can see.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from typing import Any, Callable

from . import recorder as phases
from .place import where
from .recorder import Recorder
from .roles import Roles
from .samples import SIZES, first_dimension
from .streams import OTHER, TRAIN, UNKNOWN, LoaderRecord, Registry, Stream
from .waits import look_at_queue

WORTH_A_LOOK_NS = 500_000
LOOKS = 8
FACTS_NS = 1_000_000_000
"""What a wait was for is asked at a batch that took longer than that, or at the last of so many looks."""


class LoaderHooks:
    """Round ``DataLoader.__init__``, ``__iter__``, and the iterators' ``__next__`` and ``_next_index``."""

    def __init__(
        self, recorder: Recorder, roles: Roles, registry: Registry, changes: Any, run: Any, torch_folder: str
    ) -> None:
        self._run = run
        self._recorder = recorder
        self._roles = roles
        self._registry = registry
        self._changes = changes
        self._torch_folder = torch_folder
        self.on_boundary: Callable[[Any, int], None] = lambda record, thread: None
        self.on_open: Callable[[], None] = lambda: None
        self.is_worker: Callable[[], bool] = lambda: False
        self.stall_of: Callable[[Any], int] = lambda iterator: 0
        self.news: deque[dict[str, Any]] = deque()
        self.facts_due = True
        self.look_due = False
        self._looks = self._facts_ns = 0
        self._kind_seen: str | None = None
        self.queue: tuple[int, int] | None = None
        self.wait_kind: str | None = None

    def look_again(self, now: int) -> None:
        """Called by the probe's thread at each beat: look at the queue soon, and at what is in force once a second."""
        self._looks = 0
        self.look_due = True
        if now - self._facts_ns > FACTS_NS:
            self._facts_ns = now
            self.facts_due = True

    def look_now(self) -> None:
        """Something was rolled back: told with this very batch, for it may be the last."""
        self.facts_due = True

    # ---- DataLoader.__init__ ----

    def entering_init(self, loader: Any, *_: Any) -> None:
        self._registry.constructed(loader, where(self._torch_folder, loader))

    def left_init(self, token: Any, result: Any, error: BaseException | None) -> None:
        """Nothing to leave."""

    # ---- DataLoader.__iter__ ----

    def entering_iter(self, loader: Any) -> Stream | None:
        if self.is_worker():
            return None
        recorder, registry = self._recorder, self._registry
        now, thread = recorder.clock(), recorder.ident()
        self.on_open()
        if not registry.known(loader):
            registry.constructed(loader, where(self._torch_folder, loader))
        self.close_trailing()
        record, fresh = registry.record_of(loader)
        if record.role == TRAIN and thread == recorder.thread and recorder.updates and record.stream_is_gone():
            self._end_late_step(record, now)
        former = record.open_stream()
        if former is not None and loader.persistent_workers:
            self.left(former)  # torch uses one iterator again and again
        stream, apart = Stream(record, now, thread), recorder.apart_ns
        stream.base = recorder.mark(now)
        kept = getattr(loader.__dict__.get("_iterator"), "__dict__", {}).get(SIZES)
        if kept is not None:
            kept.clear()
        if record.role == TRAIN:
            self._run("kernels", self.on_boundary, record, thread)
        self._run("swap", self._changes.at_boundary, stream, loader, fresh)
        stream.planned = self._changes.planned(stream)
        stream.change, stream.apart_ns = recorder.setting.change, apart
        if thread == recorder.thread or recorder.thread is None:
            recorder.doing, recorder.since = phases.LOADER_START, recorder.clock()
        return stream

    def left_iter(self, stream: Stream, iterator: Any, error: BaseException | None) -> None:
        recorder, record = self._recorder, stream.record
        now = recorder.clock()
        if stream.thread == recorder.thread or recorder.thread is None:
            recorder.doing, recorder.since = phases.OTHER, now
        attributes = getattr(iterator, "__dict__", None)
        if error is not None or attributes is None:
            return
        stream.start_ns = stream.pending_start = now - stream.opened_ns
        stream.iterator = weakref.ref(iterator, functools.partial(self._iterator_died, stream))
        stream.sizes = attributes.setdefault(SIZES, stream.sizes)
        attributes["_cockpit"] = stream
        record.stream = stream
        record.iterators += 1
        self._run("swap", self._changes.opened, stream, record.alive(), iterator, stream.planned)
        self._changes.news = self.facts_due = True

    def _end_late_step(self, record: LoaderRecord, now: int) -> None:
        """An update came after the last iterator was gone.

        Where the script takes ``next(iter(loader))`` in each step, here is where the next batch is asked for; where
        the iterator was used up, the step has ended with its update and a gap has followed.
        """
        recorder = self._recorder
        if record.stream is not None and record.stream.used_up:
            recorder.end_step(recorder.last_update_ns)
            recorder.leave_steps()
        else:
            recorder.end_step(now)

    # ---- iterator.__next__ ----

    def entering_next(self, iterator: Any) -> tuple[Stream, int] | None:
        recorder = self._recorder
        stream: Stream | None = iterator.__dict__.get("_cockpit")
        if stream is None or stream.ended:
            return None
        now, thread = recorder.clock(), recorder.ident()
        stream.thread = thread
        if recorder.thread is not None and recorder.thread != thread:
            if recorder.attention and self._changes.concerns(stream):
                self._run("swap", self._changes.at_next, stream, iterator)
            return stream, now
        if recorder.inside:
            return None  # a loader inside another loader's dataset: its time is the outer one's
        recorder.inside = True
        if stream.trains and recorder.updates:
            recorder.end_step(now)
        if recorder.base is None and stream.batches and (stream.batches > 1 or stream.consumed):
            stream.rebase(recorder.mark(now))  # batches that nobody trained on: not part of the step to come
        stream.entered = now
        if recorder.attention and self._changes.concerns(stream):
            recorder.doing, recorder.since = phases.LOADER_START, now
            self._run("swap", self._changes.at_next, stream, iterator)
        recorder.doing = phases.LOADER if stream.batches else phases.LOADER_START
        recorder.since = now
        if self.look_due and stream.trains:
            self._looks += 1
            seen = self._run("swap", look_at_queue, stream, iterator)
            self.queue, self._kind_seen = seen or (None, None)
            self.look_due = self._kind_seen is not None
        return stream, now

    def left_next(self, token: tuple[Stream, int], data: Any, error: BaseException | None) -> None:
        # written flat: a call saved here is saved every step
        stream, began = token
        recorder = self._recorder
        now = recorder.clock()
        spent = now - began
        here = recorder.thread is None or recorder.thread == stream.thread
        if here:
            recorder.inside = False
            recorder.doing, recorder.since = phases.OTHER, now
            recorder.charged += spent
        iterator = stream.iterator()
        attributes = iterator.__dict__
        start = spent
        if spent > stream.slowest_ns and "_cockpit_samples" not in attributes:
            stream.slowest_ns = spent
        if stream.batches and error is None:
            start = self.stall_of(iterator) if "_cockpit_samples" in attributes else 0
            start += stream.stalled_ns
            stream.stalled_ns = 0
        if self._kind_seen is not None:
            self.look_due = spent < WORTH_A_LOOK_NS and self._looks < LOOKS
            self.wait_kind, self._kind_seen = self._kind_seen, None
        if recorder.base is not None and stream.trains and here:
            recorder.wait += spent - start
            recorder.start += start
        else:
            if stream.pending_at != recorder.steps:
                stream.rebase(None)
                stream.pending_at = recorder.steps
            stream.pending_wait += spent - start
            stream.pending_start += start
        stream.start_ns += start
        if error is not None:
            if self.facts_due and stream.control is not None:  # the last fetch may have been what failed
                self._run("swap", self._changes.notices, stream.record, stream.control)
            if isinstance(error, StopIteration):
                self._used_up(stream, began, now)
            return
        if not stream.batches:
            stream.record.epoch_start_ms = stream.start_ns / 1e6
            stream.first_step = recorder.steps
        stream.batches += 1
        size = attributes.get("_cockpit_samples")
        if size is None:
            size = stream.sizes.popleft() if stream.sizes else None
            if size is None or stream.record.kind != "map":
                size = first_dimension(data, 3)
        counted = 0 if size is None else size
        stream.samples += counted
        stream.unsized += size is None
        if stream.trains:
            recorder.samples += counted
            recorder.unsized += size is None
        else:
            stream.pending_samples += counted
            stream.pending_unsized += size is None
        recent = self._roles.recent
        if not recent:
            stream.evaluated = False
            recent.append(stream)
        elif recent[-1] is not stream or stream.evaluated:
            self._roles.handed_out(stream)
        if stream.landing or stream.batches == 1 or (self.facts_due and stream.trains):
            self.facts_due = self.facts_due and not stream.trains
            self._run("swap", self._changes.looked_at, stream, iterator)

    # ---- ends ----

    def _iterator_died(self, stream: Stream, _: Any) -> None:
        """A weakref callback: the script let go of the iterator (``break``). Runs anywhere: only a few stores."""
        self.left(stream)

    def _used_up(self, stream: Stream, began: int, now: int) -> None:
        """StopIteration: the epoch is over, unless the script has read one batch ahead and will train on it yet."""
        stream.used_up = True
        if stream.trains and stream.batches - stream.consumed == 1 < stream.batches:
            self._recorder.trailing = stream
        else:
            self.ended(stream, began, now)

    def close_trailing(self) -> None:
        """Something else begins: the batch that was read ahead has been trained on."""
        stream, self._recorder.trailing = self._recorder.trailing, None
        if stream is not None:
            self.left(stream)

    def left(self, stream: Stream) -> None:
        """The script will not come back to this stream: its last step ended with the last update."""
        recorder = self._recorder
        self.ended(stream, recorder.last_update_ns if recorder.updates else stream.entered)

    def tell_others(self) -> None:
        """Something trains: loaders that have served, and it was not for that, are others. Before, nobody can tell."""
        for record in list(self._registry.records.values()):
            if record.role == UNKNOWN and record.stream is not None and record.stream.ended and record.stream.batches:
                record.role = OTHER
                self._changes.news = True

    def ended(self, stream: Stream, at_ns: int, closed_ns: int = 0) -> None:
        """The stream is used up or left: its steps end at ``at_ns``; closing it took until ``closed_ns``."""
        recorder, record = self._recorder, stream.record
        if stream.ended:
            return
        stream.ended = True
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
        steps = stream.batches if record.read_ahead else recorder.steps - stream.first_step
        if not steps or not stream.batches:
            return
        samples = None if stream.unsized else stream.samples
        self.news.append({
            "m": "epoch", "loader": record.id, "epoch": record.epochs, "steps": steps, "samples": samples,
            "wall_ns": max(at_ns, closed_ns) - stream.opened_ns - (recorder.apart_ns - stream.apart_ns),
            "start_ns": stream.start_ns, "whole": stream.change == recorder.setting.change,
        })  # fmt: skip
        record.epochs += 1
        record.steps_per_epoch = steps
        if samples is not None:
            record.samples_by_epoch.append(samples)
        recorder.epoch, recorder.epoch_began_step = record.epochs, recorder.steps
        self._changes.news = True

"""What happens at each patched place of the data loader and of backward, in the script's thread.

``install`` puts these methods round torch's functions through the guard; they time, count, tell loaders apart,
and let ``changes`` act at the two moments where it may: entry of ``__iter__`` and entry of ``__next__``.
They must stay short (a step may cost twelve Python calls in all) and never touch what the script can see.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Callable

from . import recorder as phases
from .place import where
from .recorder import Recorder
from .roles import Roles
from .streams import OTHER, TRAIN, UNKNOWN, LoaderRecord, Registry, Stream


class LoaderHooks:
    """Round ``DataLoader.__init__``, ``__iter__``, and the iterators' ``__next__`` and ``_next_index``."""

    def __init__(
        self, recorder: Recorder, roles: Roles, registry: Registry, changes: Any, torch_folder: str
    ) -> None:
        self._recorder = recorder
        self._roles = roles
        self._registry = registry
        self._changes = changes
        self._torch_folder = torch_folder
        self.on_open: Callable[[], None] = lambda: None
        self.is_worker: Callable[[], bool] = lambda: False
        self.stall_of: Callable[[Any], int] = lambda iterator: 0
        self.news: deque[dict[str, Any]] = deque()
        self.look_due = False
        self.queue: tuple[int, int] | None = None
        self.wait_kind: str | None = None

    # ---- DataLoader.__init__ ----

    def entering_init(self, loader: Any, *_: Any) -> None:
        self._registry.constructed(loader, where(self._torch_folder))

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
            registry.constructed(loader, where(self._torch_folder))
        record, fresh = registry.record_of(loader)
        former = record.open_stream()
        if former is not None:
            self.ended(former, recorder.last_update_ns if recorder.updates else former.entered)
        stream = Stream(record, now, thread)
        stream.base = recorder.mark(now)
        sizes = getattr(loader.__dict__.get("_iterator"), "__dict__", {}).get("_cockpit_sizes")
        if sizes is not None:
            sizes.clear()
        self._changes.at_boundary(stream, loader, fresh)
        if thread == recorder.thread or recorder.thread is None:
            recorder.doing, recorder.since = phases.LOADER_START, recorder.clock()
        return stream

    def left_iter(self, stream: Stream, iterator: Any, error: BaseException | None) -> None:
        recorder, record = self._recorder, stream.record
        now = recorder.clock()
        if stream.thread == recorder.thread or recorder.thread is None:
            recorder.doing, recorder.since = phases.OTHER, now
        if error is not None:
            return
        stream.start_ns = stream.pending_start = now - stream.opened_ns
        stream.pending_at = recorder.steps
        attributes = getattr(iterator, "__dict__", None)
        if attributes is None:
            return
        stream.iterator = weakref.ref(iterator, lambda _, stream=stream: self._iterator_died(stream))
        stream.sizes = attributes.setdefault("_cockpit_sizes", stream.sizes)
        attributes["_cockpit"] = stream
        record.stream = stream
        record.iterators += 1
        self._changes.news = True

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
                self._changes.at_next(stream, iterator)
            return stream, now
        if recorder.inside:
            return None  # a loader inside another loader's dataset: its time is the outer one's
        recorder.inside = True
        if stream.trains:
            recorder.stream = stream
            if recorder.updates:
                recorder.end_step(now)
        if recorder.base is None and stream.batches:
            stream.base = recorder.mark(now)
        stream.entered = now
        if recorder.attention and self._changes.concerns(stream):
            self._changes.at_next(stream, iterator)
        recorder.doing = phases.LOADER if stream.batches else phases.LOADER_START
        if self.look_due and stream.trains:
            self.look_due = False
            self.queue, self.wait_kind = self._changes.look_at_queue(stream, iterator)
        recorder.since = now
        return stream, now

    def left_next(self, token: tuple[Stream, int], data: Any, error: BaseException | None) -> None:
        stream, began = token
        recorder, record = self._recorder, stream.record
        now = recorder.clock()
        spent = now - began
        here = recorder.thread is None or recorder.thread == stream.thread
        if here:
            recorder.inside = False
            recorder.doing, recorder.since = phases.OTHER, now
        iterator = stream.iterator()
        attributes = iterator.__dict__
        start = spent
        if stream.batches and error is None:
            start = self.stall_of(iterator) if "_cockpit_samples" in attributes else 0
        if recorder.base is not None and stream.trains and here:
            recorder.wait += spent - start
            recorder.start += start
            recorder.charged += spent
        else:
            if stream.pending_at != recorder.steps:
                stream.pending_wait = stream.pending_start = 0
                stream.pending_at = recorder.steps
            stream.pending_wait += spent - start
            stream.pending_start += start
        stream.start_ns += start
        if error is not None:
            if isinstance(error, StopIteration):
                self.ended(stream, began, now)
            return
        if not stream.batches:
            record.epoch_start_ms = stream.start_ns / 1e6
        size = attributes.get("_cockpit_samples")
        if size is None:
            size = stream.sizes.popleft() if stream.sizes else None
            if size is None or record.kind != "map":
                size = first_dimension(data, 3)
        stream.batches += 1
        if size is None:
            stream.unsized += 1
            recorder.unsized += stream.trains
        else:
            stream.samples += size
            if stream.trains:
                recorder.samples += size
        recent = self._roles.recent
        if not recent or recent[-1] is not stream or stream.evaluated:
            self._roles.handed_out(stream)
        if stream.landing or stream.batches <= 2:
            self._changes.looked_at(stream, iterator)

    # ---- iterator._next_index ----

    @staticmethod
    def count_index(original: Any, is_compiling: Callable[[], bool]) -> Callable[[Any], Any]:
        """A ``_next_index`` that remembers how long each index batch was; nothing in it can fail."""

        def _next_index(self: Any) -> Any:
            index = original(self)
            if not is_compiling():
                sizes = self.__dict__.get("_cockpit_sizes")
                if sizes is None:
                    sizes = self.__dict__["_cockpit_sizes"] = deque()
                sizes.append(len(index) if type(index) in (list, tuple) else None)
            return index

        return _next_index

    # ---- ends ----

    def _iterator_died(self, stream: Stream) -> None:
        """A weakref callback: the script let go of the iterator (``break``). Runs anywhere: only a few stores."""
        if not stream.ended:
            self.ended(stream, self._recorder.last_update_ns if self._recorder.updates else stream.entered)

    def ended(self, stream: Stream, at_ns: int, closed_ns: int = 0) -> None:
        """The stream is used up or left: its steps end at ``at_ns``; closing it took until ``closed_ns``."""
        recorder, record = self._recorder, stream.record
        if stream.ended:
            return
        stream.ended = True
        if not stream.trains:
            if record.role == UNKNOWN and stream.batches:
                record.role = OTHER
                self._changes.news = True
            return
        others = any(s.trains and s is not stream and not s.ended for s in self._roles.recent)
        if not others and stream.thread == recorder.thread:
            if recorder.updates and recorder.base is not None:
                recorder.end_step(max(at_ns, recorder.last_update_ns))
            recorder.decide_own_optimizer()
            recorder.leave_steps(at_ns, max(0, closed_ns - at_ns))
        if not stream.steps:
            return
        sure = None if stream.unsized else stream.samples
        self.news.append({
            "m": "epoch", "loader": record.id, "epoch": record.epochs, "steps": stream.steps, "samples": sure,
            "wall_ns": max(0, at_ns, closed_ns) - stream.opened_ns, "start_ns": stream.start_ns,
        })  # fmt: skip
        record.epochs += 1
        record.steps_per_epoch = stream.steps
        if sure is not None:
            record.samples_by_epoch.append(sure)
        recorder.epoch = record.epochs
        recorder.step_in_epoch = 0
        self._changes.news = True

    # ---- backward ----

    def after_backward(self, began: int, charged: int) -> None:
        """Charge it, and let this backward tell which loaders train; the plain step goes straight through."""
        recorder, roles = self._recorder, self._roles
        recorder.backward_left(began, charged)
        if recorder.thread is None:
            recorder.thread = recorder.ident()
        recent = roles.recent
        if len(recent) == 1 and recent[0].trains and recorder.base is not None and not recorder.read_ahead:
            roles.interval += 1
            recent[0].interval = roles.interval
            recent.clear()
        elif recent or recorder.base is None:
            self._settle(began)
        if recorder.loaderless and not recorder.forward_seen:
            if recorder.base is None:
                recorder.begin(recorder.mark(began))
            elif recorder.updates > (not recorder.optimizer_seen):
                recorder.end_step(began)
                recorder.updates += not recorder.optimizer_seen

    def _settle(self, began: int) -> None:
        recorder = self._recorder
        known = bool(self._registry.training())
        training, ahead = self._roles.settle(recorder.thread or 0, known)
        for stream in training:
            if not stream.trains:
                self._promote(stream, ahead)
        if training:
            recorder.loaderless = recorder.read_ahead = ahead
            recorder.stream = stream = training[-1]
            recorder.epoch = stream.record.epochs
            if recorder.base is None and not ahead:
                bases = [s.base for s in training if s.base is not None]
                recorder.begin(min(bases) if bases else recorder.mark(began))
                for stream in training:
                    recorder.wait += stream.pending_wait
                    recorder.start += stream.pending_start
                    stream.pending_wait = stream.pending_start = 0
        elif not known:
            recorder.loaderless = True

    def _promote(self, stream: Stream, ahead: bool) -> None:
        recorder, record = self._recorder, stream.record
        stream.trains = True
        record.role = TRAIN
        record.read_ahead = ahead
        recorder.samples += stream.samples
        recorder.unsized += stream.unsized
        if recorder.base is not None:
            recorder.wait += stream.pending_wait
            recorder.start += stream.pending_start
            stream.pending_wait = stream.pending_start = 0
        self._changes.news = True


def first_dimension(data: Any, depth: int) -> int | None:
    """Length of the first tensor found in ``data``, or None: never a guess."""
    shape = getattr(data, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth and hasattr(data, "values") and hasattr(data, "keys"):
        data = list(data.values())
    if depth and isinstance(data, (list, tuple)):
        for item in data[:8]:
            found = first_dimension(item, depth - 1)
            if found is not None:
                return found
    return None

"""What happens at each patched place of the data loader and of backward, in the script's thread.

``install`` puts these methods round torch's functions through the guard; they time, count, tell loaders apart,
and let ``changes`` act at the two moments where it may: entry of ``__iter__`` and entry of ``__next__``.
They must stay short (a step may cost twelve Python calls in all) and never touch what the script can see.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable

from . import recorder as phases
from .epochs import Epochs
from .place import made_by_installed_code, where
from .preflight import weigh
from .recorder import Recorder
from .registry import Registry
from .roles import Roles
from .samples import SIZES, first_dimension
from .streams import TRAIN, UNKNOWN, Stream
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
        self.on_batch: Callable[[], None] = lambda: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_hold: Callable[[], None] = lambda: None
        self.on_forked: Callable[[], None] = lambda: None
        """Workers may have been forked, and all that one iterator has."""
        self.on_fetch: Callable[[], None] = lambda: None
        """A training loader begins anew, in the training's thread."""
        self.is_worker: Callable[[], bool] = lambda: False
        self.stall_of: Callable[[Any], int] = lambda iterator: 0
        self.on_opening: Callable[[Any], None] | None = None
        """Told of each loader before it is iterated, once the script has opted in to hand-offs."""
        self.epochs = Epochs(recorder, roles, registry, changes, run)
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

    def entering_init(self, loader: Any, *_: Any) -> Any:
        self._registry.constructed(loader, where(self._torch_folder, loader))
        return loader if made_by_installed_code(self._torch_folder) else None

    def left_init(self, loader: Any, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._registry.derived(loader)

    # ---- DataLoader.__iter__ ----

    def entering_iter(self, loader: Any) -> Stream | None:
        if self.is_worker():
            return None
        recorder, registry = self._recorder, self._registry
        now, thread = recorder.clock(), recorder.ident()
        self.on_open()
        if not registry.known(loader):
            registry.constructed(loader, where(self._torch_folder, loader))
        self.epochs.close_trailing()
        if self.on_opening is not None:
            self._run("handoff", self.on_opening, loader)
        record, fresh = registry.record_of(loader)
        if record.role == UNKNOWN and recorder.backwards:
            self.epochs.tell_others()
        if record.role == TRAIN and thread == recorder.thread:
            self.on_fetch()
            if recorder.updates:
                self.epochs.late_step(record, now)
        if recorder.hold:
            self.on_hold()
            now = recorder.clock()
        former = record.open_stream()
        if former is not None and loader.persistent_workers:
            self.epochs.left(former)  # torch uses one iterator again and again
        stream, apart = Stream(record, now, thread), recorder.apart_at(now)
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
            self.on_forked()
        attributes = getattr(iterator, "__dict__", None)
        if error is not None or attributes is None:
            return
        compiled_ns = recorder.apart_ns - stream.apart_ns  # a change that landed here may have had to load the compiler
        stream.start_ns = stream.pending_start = now - stream.opened_ns - compiled_ns
        stream.iterator = weakref.ref(iterator, functools.partial(self._iterator_died, stream))
        stream.sizes = attributes.setdefault(SIZES, stream.sizes)
        attributes["_cockpit"] = stream
        record.stream = stream
        record.iterators += 1
        self._run("swap", self._changes.opened, stream, record.alive(), iterator, stream.planned)
        self._changes.news = self.facts_due = True

    # ---- iterator.__next__ ----

    def entering_next(self, iterator: Any) -> tuple[Stream, int, int] | None:
        recorder = self._recorder
        stream: Stream | None = iterator.__dict__.get("_cockpit")
        if stream is None or stream.ended:
            return None
        now, thread, apart = recorder.clock(), recorder.ident(), recorder.apart_ns
        stream.thread = thread
        if recorder.thread is not None and recorder.thread != thread:
            if recorder.attention and self._changes.concerns(stream):
                self._run("swap", self._changes.at_next, stream, iterator)
            return stream, now, apart
        if recorder.inside:
            return None  # a loader inside another loader's dataset: its time is the outer one's
        recorder.inside = True
        if recorder.trailing is not None and stream.trains:
            self.epochs.fetched_again(stream)
        if stream.trains and recorder.updates:
            recorder.end_step(now)
            if recorder.hold:
                self.on_hold()
                now, apart = recorder.clock(), recorder.apart_ns
        if recorder.base is None and stream.batches and (stream.consumed or stream.batches >= stream.record.lead):
            stream.rebase(recorder.mark(now))  # batches that nobody trained on: not part of the step to come
        stream.entered = now
        if recorder.trial is not None and stream.trains:
            self._run("kernels", self.on_batch)
        if recorder.attention and self._changes.concerns(stream):
            recorder.doing, recorder.since = phases.LOADER_START, now
            self._run("swap", self._changes.at_next, stream, iterator)
            self.on_forked()
        recorder.doing = phases.LOADER if stream.batches else phases.LOADER_START
        recorder.since = now
        if self.look_due and stream.trains:
            self._looks += 1
            seen = self._run("swap", look_at_queue, stream, iterator)
            self.queue, self._kind_seen = seen or (None, None)
            self.look_due = self._kind_seen is not None
        return stream, now, apart

    def left_next(self, token: tuple[Stream, int, int], data: Any, error: BaseException | None) -> None:
        # written flat: a call saved here is saved every step
        stream, began, apart = token
        recorder = self._recorder
        now = recorder.clock()
        spent = now - began - (recorder.apart_ns - apart)
        if spent < 0:  # read ahead by another thread, past the end of a pause
            spent = 0
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
            if stream.control is not None:
                stream.control.patience.saw(spent / 1e9)
        # taken at the first batch too, where all is start: what it built is not the second one's
        stalled = self.stall_of(iterator) if "_cockpit_samples" in attributes else 0
        if stream.batches and error is None:
            start = stalled + stream.stalled_ns
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
                self._run("swap", self._changes.take_notices, stream.record, stream.control, spent)
            if isinstance(error, StopIteration):
                self.epochs.used_up(stream, began, now)
                if recorder.hold:
                    self.on_hold()
            return
        if not stream.batches:
            stream.record.epoch_start_ms = stream.start_ns / 1e6
            stream.first_step = recorder.steps
            stream.record.weight = self._run("preflight", weigh, data)
        stream.batches += 1
        if stream.batches == stream.pass_end:
            self.epochs.pass_over(stream)
        recorder.fetches += 1
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
            self._run("swap", self._changes.looked_at, stream, iterator, spent)

    # ---- ends ----

    def _iterator_died(self, stream: Stream, _: Any) -> None:
        """A weakref callback: the script let go of the iterator (``break``). Runs anywhere: only a few stores."""
        if stream is not self._recorder.trailing or self._recorder.trailing_done():
            self.epochs.left(stream)

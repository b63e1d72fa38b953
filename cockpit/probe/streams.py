"""The loaders of this process and the iterators (streams) that the script opens on them.

Kept by the hooks; read by ``changes`` and ``reports``. A loader is known by where the script made it, so that one
that is made anew each epoch stays one loader. It never keeps a DataLoader, an iterator or a dataset alive.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from ..model.knobs import Value

TRAIN, OTHER, UNKNOWN = "train", "other", "unknown"
TWINS = 4
"""So many loaders of one line are told apart before they begin to share names."""


class Stream:
    """One iterator of a loader, from ``__iter__`` to its end. Pending times are not yet charged to any step."""

    __slots__ = (
        "__weakref__",
        "apart_ns",
        "backwards",
        "base",
        "batches",
        "behind",
        "change",
        "consumed",
        "control",
        "ended",
        "entered",
        "evaluated",
        "first_step",
        "interval",
        "iterator",
        "landing",
        "lead",
        "opened_ns",
        "pending_at",
        "pending_samples",
        "pending_start",
        "pending_unsized",
        "pending_wait",
        "per_step",
        "planned",
        "record",
        "samples",
        "sizes",
        "stalled_ns",
        "start_ns",
        "thread",
        "trains",
        "unsized",
        "used_up",
    )  # fmt: skip

    def __init__(self, record: LoaderRecord, opened_ns: int, thread: int) -> None:
        self.record = record
        self.control: Any = None
        self.iterator: Any = None
        self.thread = thread
        self.trains = record.role == TRAIN
        self.opened_ns = self.entered = opened_ns
        self.base: Any = None
        self.change: str | None = None
        self.apart_ns = 0
        self.batches = self.consumed = self.samples = self.unsized = self.first_step = 0
        self.lead = self.backwards = self.behind = self.per_step = 0
        self.start_ns = self.stalled_ns = 0
        self.pending_wait = self.pending_start = self.pending_samples = self.pending_unsized = 0
        self.pending_at = -1
        self.sizes: deque[int | None] = deque()
        self.interval = -1
        self.evaluated = self.ended = self.planned = self.used_up = False
        self.landing: list[Any] = []

    def rebase(self, base: Any) -> None:
        """What was pending belongs to no step any more (or has been charged); a new step would begin at ``base``."""
        self.pending_wait = self.pending_start = self.pending_samples = self.pending_unsized = 0
        self.base = base if base is not None else self.base

    def first_trained(self, backwards: int) -> None:
        """The first backward on it, and the ``backwards``-th of all: ``lead`` batches had been handed out by then."""
        self.lead, self.backwards = self.batches, backwards

    def still_to_train(self, backwards: int) -> int:
        """How many batches the script holds that it has still to train on, after ``backwards`` of all.

        Only a loop that had read ahead before its first backward keeps some; others have skipped them, or made one
        backward of several. A loop may fetch the batches of a whole update at once, or go back twice on each.
        """
        if not self.consumed:
            return self.batches
        by_fetch, by_backward = self.batches - self.consumed, self.batches - (backwards - self.backwards + 1)
        return next((held for held in (by_fetch, by_backward) if 0 < held < self.lead), 0)


class LoaderRecord:
    """One loader as the run knows it; outlives the DataLoader objects that the script makes at one place."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.role = UNKNOWN
        self.kind = "map"
        self.epochs = self.epochs_before = 0
        """Epochs of its own, and those that others had served before it first trained."""
        self.lead = 2
        """So many batches may be fetched before the first of them is trained on: more than that have been skipped."""
        self.iterators = 0
        self.batches_per_epoch: int | None = None
        self.steps_per_epoch: int | None = None
        self.batch_size: int | None = None
        self.read_ahead = False
        self.samples_by_epoch: deque[int] = deque(maxlen=64)
        self.epoch_start_ms: float | None = None
        self.last_step = -1
        self.batch: Any = None
        """The BatchSize of the present DataLoader. It and what follows are kept by ``batching`` alone."""
        self.trial: Any = None
        self.accepted: Value | None = None
        """The batch size that was last brought into force here."""
        self.used_up: bool | None = None
        """Whether the last epoch that was trained on ended by exhausting the loader; None: there was none yet."""
        self.span = (0, 0)
        """The steps of that epoch: the first, and the first after it."""
        self.framework: str | None = None
        self.asked_length: str | None = None
        """Who has asked for ``len`` of the loader."""
        self.loader: weakref.ref[Any] | None = None
        self.control: Any = None
        self.stream: Stream | None = None
        self.start_set: Mapping[str, Value] = {}
        """Set from the start for every loader that trains, or may turn out to."""
        self.named_set: Mapping[str, Value] = {}
        """Set from the start for this loader by name."""
        self.asked: dict[str, Value] = {}
        """Asked for since then. All three are applied again to a DataLoader made anew at this place."""
        self.group: Any = None
        """The Group that ``planned_for``, once ``wanted``, means for the present DataLoader; None: never managed."""
        self.planned_for: dict[str, Value] = {}
        self.reasons: dict[str, str] = {}
        self.refusals: Mapping[str, Any] = {}
        self.script: Any = None
        self.in_force: Any = None
        self.workers: tuple[int, ...] = ()
        self.capacity = 0
        self.last_landing: tuple[list[Any], dict[str, Value]] | None = None
        """The asks that landed last, and what had been asked before them."""

    @property
    def wanted(self) -> dict[str, Value]:
        """What this loader should have beside the script's own settings, by knob."""
        start = self.start_set if self.role != OTHER else {}
        return {**start, **self.named_set, **self.asked}

    def alive(self) -> Any:
        """The DataLoader, or None."""
        return self.loader() if self.loader is not None else None

    def stream_is_gone(self) -> bool:
        """Whether no iterator of this loader lives any more."""
        return self.stream is None or self.stream.ended or self.stream.iterator() is None

    def epochs_begun(self) -> int:
        """Epochs so far, of the whole training, as the entry of ``__iter__`` sees them.

        A framework may hold the old iterator until it has the new one: then the epoch that is still open is over.
        """
        open_one = self.open_stream()
        return self.epochs_before + self.epochs + (open_one is not None and open_one.trains and open_one.batches > 0)

    def open_stream(self) -> Stream | None:
        """The newest iterator's stream, or None where it has ended."""
        return self.stream if self.stream is not None and not self.stream.ended else None


class _Made:
    """One DataLoader object: where it was made, its name once it has one, its LoaderControl once it needs one."""

    __slots__ = ("asked", "batch", "control", "met", "name", "place", "ref", "root")

    def __init__(self, ref: weakref.ref[Any], place: str) -> None:
        self.ref = ref
        self.place = place
        self.name: str | None = None
        self.root: _Made | None = None
        self.met = False
        self.control: Any = None
        self.asked: str | None = None
        self.batch: Any = None


class Registry:
    """Names DataLoaders: ``constructed`` when one is made, ``record_of`` when it is first iterated.

    Naming waits for the first ``__iter__`` since a loader that is made anew in the epoch loop still has its
    former self alive while it is constructed. Keyed by ``id``: a loader need not be hashable.
    """

    def __init__(self) -> None:
        self.records: dict[str, LoaderRecord] = {}
        self._made: dict[int, _Made] = {}

    def constructed(self, loader: Any, place: str) -> _Made:
        """``loader`` was made at ``place``; loaders are remembered in the order they were made."""
        key, made = id(loader), self._made
        made.pop(key, None)
        entry = made[key] = _Made(weakref.ref(loader, lambda _: made.pop(key, None)), place)
        return entry

    def derived(self, loader: Any) -> None:
        """Installed code has made ``loader``: where it serves the batches of an earlier one it goes by that one's name.

        Accelerate makes a loader anew of each that it prepares, and of each of which it skips the first batches.
        """
        entry = self._made[id(loader)]
        for other in reversed(list(self._made.values())):
            if other is not entry and same_batches(loader, other.ref()):
                entry.root = other.root or other
                entry.place = entry.root.place
                return

    def known(self, loader: Any) -> bool:
        """Whether the making of ``loader`` was seen."""
        entry = self._made.get(id(loader))
        return entry is not None and entry.ref() is loader

    def record_of(self, loader: Any) -> tuple[LoaderRecord, bool]:
        """The record of ``loader``, and whether this object is new to it; it must be ``known``."""
        entry = self._made[id(loader)]
        if entry.name is None:
            self._name_those_made_at(entry)
        name = str(entry.name)
        record = self.records.setdefault(name, LoaderRecord(name))
        fresh, entry.met = not entry.met or record.loader is not entry.ref, True
        record.loader, record.asked_length = entry.ref, record.asked_length or entry.asked
        return record, fresh

    def length_asked(self, loader: Any, by: str, only_to_show: bool) -> None:
        """Somebody has called ``len(loader)``; who decides something by it is remembered rather than who shows it."""
        if self.known(loader):
            entry = self._made[id(loader)]
            entry.asked = entry.asked or by if only_to_show else by
            if entry.name in self.records:
                self.records[entry.name].asked_length = entry.asked

    def _name_those_made_at(self, last: _Made) -> None:
        """Names all loaders of one place in the order they were made, up to and including ``last``."""
        for entry in list(self._made.values()):
            if entry.place == last.place and entry.name is None:
                root = entry.root or entry
                root.name = entry.name = root.name or self._free_name(entry.place)
            if entry is last:
                break

    def _free_name(self, place: str) -> str:
        """The next name at ``place``; beyond so many twins the newest one that does not train hands its own on.

        A framework may make a loader for each evaluation, and keep them all.
        """
        taken = {entry.name for entry in self._made.values()}
        names = [place]
        while names[-1] in taken:
            names.append("%s#%d" % (place, len(names) + 1))
        for name in reversed(names[:-1] if len(names) > TWINS else []):
            record = self.records.get(name)
            if record is not None and record.role == OTHER and record.open_stream() is None:
                return name
        return names[-1]

    def control_of(self, loader: Any, make: Any) -> Any:
        """The LoaderControl of ``loader``, made at first need."""
        entry = self._made[id(loader)]
        if entry.control is None:
            entry.control = make(loader)
        return entry.control

    def batch_of(self, loader: Any, make: Any) -> Any:
        """The BatchSize of ``loader``: what its own size was is only seen before the first change."""
        entry = self._made[id(loader)]
        if entry.batch is None:
            entry.batch = make(loader)
        return entry.batch

    def training(self) -> list[LoaderRecord]:
        """Loaders that train and are still there: the DataLoader, or an iterator that outlives it."""
        return [
            record
            for record in list(self.records.values())
            if record.role == TRAIN and (record.alive() is not None or record.open_stream() is not None)
        ]


def same_batches(loader: Any, other: Any) -> bool:
    """Whether ``loader`` serves what ``other`` would: the same dataset and batch sampler, bare or wrapped."""
    if other is None or not _wraps(loader.dataset, other.dataset, "dataset"):
        return False
    if other.batch_sampler is None or other._dataset_kind:  # of a stream every loader batches anew
        return bool(other._dataset_kind) or loader.sampler is other.sampler
    return _wraps(loader.batch_sampler, other.batch_sampler, "batch_sampler")


def _wraps(outer: Any, inner: Any, under: str) -> bool:
    """Whether ``outer`` is ``inner``, or carries it as its attribute ``under``, or that does."""
    for _ in range(3):
        if outer is inner:
            return True
        outer = getattr(outer, "__dict__", {}).get(under)
    return False

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


class Stream:
    """One iterator of a loader, from ``__iter__`` to its end. Pending times are not yet charged to any step."""

    __slots__ = (
        "__weakref__",
        "apart_ns",
        "base",
        "batches",
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
        "opened_ns",
        "pending_at",
        "pending_samples",
        "pending_start",
        "pending_unsized",
        "pending_wait",
        "planned", "record",
        "samples",
        "sizes",
        "slowest_ns",
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
        self.start_ns = self.stalled_ns = self.slowest_ns = 0
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


class LoaderRecord:
    """One loader as the run knows it; outlives the DataLoader objects that the script makes at one place."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.role = UNKNOWN
        self.kind = "map"
        self.epochs = 0
        self.iterators = 0
        self.batches_per_epoch: int | None = None
        self.steps_per_epoch: int | None = None
        self.batch_size: int | None = None
        self.read_ahead = False
        self.samples_by_epoch: deque[int] = deque(maxlen=64)
        self.epoch_start_ms: float | None = None
        self.last_step = -1
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
        """Epochs so far as the entry of ``__iter__`` sees them.

        A framework may hold the old iterator until it has the new one: then the epoch that is still open is over.
        """
        open_one = self.open_stream()
        return self.epochs + (open_one is not None and open_one.trains and open_one.batches > 0)

    def open_stream(self) -> Stream | None:
        """The newest iterator's stream, or None where it has ended."""
        return self.stream if self.stream is not None and not self.stream.ended else None


class _Made:
    """One DataLoader object: where it was made, its name once it has one, its LoaderControl once it needs one."""

    __slots__ = ("control", "met", "name", "place", "ref")

    def __init__(self, ref: weakref.ref[Any], place: str) -> None:
        self.ref = ref
        self.place = place
        self.name: str | None = None
        self.met = False
        self.control: Any = None


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
        fresh, entry.met = not entry.met, True
        record = self.records.setdefault(name, LoaderRecord(name))
        record.loader = entry.ref
        return record, fresh

    def _name_those_made_at(self, last: _Made) -> None:
        """Names all loaders of one place in the order they were made, up to and including ``last``."""
        for entry in list(self._made.values()):
            if entry.place == last.place and entry.name is None:
                entry.name = self._free_name(entry.place)
            if entry is last:
                break

    def _free_name(self, place: str) -> str:
        taken = {entry.name for entry in self._made.values()}
        number, name = 1, place
        while name in taken:
            number += 1
            name = "%s#%d" % (place, number)
        return name

    def control_of(self, loader: Any, make: Any) -> Any:
        """The LoaderControl of ``loader``, made at first need."""
        entry = self._made[id(loader)]
        if entry.control is None:
            entry.control = make(loader)
        return entry.control

    def training(self) -> list[LoaderRecord]:
        """Loaders that train and are still there: the DataLoader, or an iterator that outlives it."""
        return [
            record
            for record in list(self.records.values())
            if record.role == TRAIN and (record.alive() is not None or record.open_stream() is not None)
        ]

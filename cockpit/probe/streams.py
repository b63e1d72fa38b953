"""What is known of each loader of this process, and of the iterators (streams) that the script opens on them.

Kept by the hooks; read by ``changes`` and ``reports``. A record outlives the DataLoader objects that the script makes
at one place. It never keeps a DataLoader, an iterator or a dataset alive.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from ..model.knobs import Value
from .lengths import Lengths

TRAIN, OTHER, UNKNOWN = "train", "other", "unknown"


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
        "pass_end",
        "pass_length",
        "pending_at",
        "pending_samples",
        "pending_start",
        "pending_unsized",
        "pending_wait",
        "per_batch",
        "per_step",
        "planned",
        "record",
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
        self.lead = self.backwards = self.behind = self.per_step = 0
        self.pass_end = self.pass_length = 0
        self.per_batch = 1
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
        self.unfed: str | None = None
        """Why it feeds no training now, though it has: nothing was fetched for long, and no iterator is left."""
        self.samples_by_epoch: deque[int] = deque(maxlen=64)
        self.epoch_start_ms: float | None = None
        self.last_step = -1
        self.batch: Any = None
        """The BatchSize of the present DataLoader. It and what follows are kept by ``batching`` alone."""
        self.trial: Any = None
        self.accepted: Value | None = None
        """The batch size that was last brought into force here."""
        self.handed: int | None = None
        """The batch size that an earlier process of this run has kept here: the loop was seen to take it."""
        self.used_up: bool | None = None
        """Whether the last epoch that was trained on ended by exhausting the loader; None: there was none yet."""
        self.span = (0, 0)
        """The steps of that epoch: the first, and the first after it."""
        self.framework: str | None = None
        self.shared = False
        self.asked_length: str | None = None
        """Who has asked for ``len`` of the loader."""
        self.lengths = Lengths()
        self.loader: weakref.ref[Any] | None = None
        self.control: Any = None
        self.learnt: dict[str, Any] = {}
        """What the script does to the datasets of this place, by their kind: kept by the controls of its loaders."""
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
        self.forks = True
        """Whether new workers are forked, and given everything as it is."""
        self.in_force: Any = None
        self.weight: Any = None
        """What a batch weighs, as ``preflight`` has found; None where not known."""
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

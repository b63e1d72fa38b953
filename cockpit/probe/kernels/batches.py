"""The batch size of one DataLoader: at an epoch boundary only, and watched over the whole epoch that follows.

Called at the loader's ``__iter__`` (``check``, ``open``) and at the end of its iterators (``ended``), by the thread
that iterates. It draws nothing, rebuilds nothing (the loader's own batch sampler gets another number, before anything
reads it), and must never be applied to a loop that would not see all samples under it.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, NamedTuple

from ...model.knobs import SCRIPT, Value
from ..groups import Refused
from ..refusals import Refusal

NOT_YET = "the loop must first have used up the loader for one whole epoch"
LEFT_EARLY = "the loop left the last epoch before the loader was used up: another size would change what it sees"
ONLY_BOUNDARY = "changes at the epoch boundary"
_DEEPEST = 64


class Facts(NamedTuple):
    """What the loop has been seen to do. ``used_up``: whether its last epoch ended by exhausting the loader (None: no
    epoch yet); ``framework``: whose installed code iterates it, or None; ``asked_length``: ``len(loader)`` was."""

    used_up: bool | None
    framework: str | None = None
    asked_length: bool = False
    batch_norm: bool = False
    open_iterators: bool = False


class BatchSize:
    """One loader. Holds it weakly. ``script`` is the script's own size, None where the loader does not batch."""

    def __init__(self, torch: Any, loader: Any) -> None:
        self._loader = weakref.ref(loader)
        self.whole = _whole_reason(torch, loader)
        self.script: int | None = loader.batch_size
        self.in_force = self.script
        self._before = self.script
        self._watched = False

    def refusal(self, facts: Facts) -> Refusal:
        """What holds for the row: why not, or what it does besides."""
        reason = self.whole
        if reason is None and facts.framework is not None:
            reason = "%s runs the loop: it has counted its steps already, and would miss samples" % facts.framework
        if reason is None and facts.used_up is not True:
            reason = NOT_YET if facts.used_up is None else LEFT_EARLY
        if reason is not None:
            return Refusal(can=False, can_now=False, reason=reason)
        return Refusal(can=True, can_now=False, reason=ONLY_BOUNDARY, note=self.note(None, facts))

    def note(self, size: int | None, facts: Facts) -> str:
        """What another size (``size``, or any) means besides the speed."""
        notes = ["other steps an epoch and another effective batch: compare samples/s, and mind the learning rate"]
        if facts.asked_length:
            notes.append("the script has asked len(loader): bars and schedules go by the old length")
        rows = self._rows()
        if size and rows and facts.batch_norm and not self._drops() and rows % size == 1:
            notes.append("the last batch has one sample, which batch norm refuses")
        return "; ".join(notes)

    def check(self, value: Value, facts: Facts) -> int:
        """The size that ``value`` means; raises Refused. The script's own can always be had."""
        if value == SCRIPT or value == self.script:
            if self.script is None:
                raise Refused(self.whole or "the loader does not batch")
            if facts.open_iterators and self.in_force != self.script:
                raise Refused("another iterator of this loader is still open")
            return self.script
        refusal = self.refusal(facts)
        if not refusal.can:
            raise Refused(refusal.reason or "")
        if facts.open_iterators:
            raise Refused("another iterator of this loader is still open")
        size, rows = int(value), self._rows()
        if size < 1:
            raise Refused("a batch has at least 1 sample")
        if rows is None:
            raise Refused("the sampler does not tell how many samples it has")
        if size > rows and self._drops():
            raise Refused("the loader drops incomplete batches, and %d samples never fill one of %d" % (rows, size))
        if facts.batch_norm and not self._drops() and rows % size == 1:
            raise Refused("%d samples in batches of %d leave one sample over, which batch norm refuses" % (rows, size))
        return size

    def open(self, size: int) -> None:
        """The next ``iter(loader)`` serves batches of ``size``."""
        loader = self._loader()
        if loader is None or size == self.in_force:
            return
        self._before, self.in_force, self._watched = self.in_force, size, size != self.script
        loader.batch_sampler.batch_size = size
        loader.__dict__["batch_size"] = size  # what the script reads is what it gets

    def found(self) -> int | None:
        """What the loader's own batch sampler really has."""
        loader = self._loader()
        return None if loader is None else getattr(loader.batch_sampler, "batch_size", None)

    def ended(self, samples: int | None, used_up: bool) -> str | None:
        """An epoch under this size has ended: why it must not be kept, or None. Then the size before is back."""
        if not self._watched:
            return None
        self._watched = False
        expected = self._expected()
        if used_up and (samples is None or expected is None or samples == expected):
            return None
        size, before = self.in_force, self._before
        self.open(before if before is not None else int(self.script or 1))
        self._watched = False
        seen = "an unknown number" if samples is None else str(samples)
        return "with batches of %s the loop saw %s of %s samples" % (size, seen, "?" if expected is None else expected)

    def _rows(self) -> int | None:
        loader = self._loader()
        try:
            return None if loader is None else len(loader.sampler)
        except TypeError:
            return None

    def _drops(self) -> bool:
        return bool(getattr(self._loader(), "drop_last", False))

    def _expected(self) -> int | None:
        rows, size = self._rows(), self.in_force
        return rows if rows is None or not size or not self._drops() else rows - rows % size


def _whole_reason(torch: Any, loader: Any) -> str | None:
    """Why the size of this loader cannot be changed by anybody, or None."""
    if loader.batch_size is None:
        return "the script made the batches itself (batch_sampler=… or batch_size=None)"
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return "an iterable dataset tells no number of samples, so nobody could check that none are missed"
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return "%s makes the batches" % type(loader.batch_sampler).__name__
    module = type(loader.sampler).__module__
    return None if module.startswith("torch.utils.data") else "the script's own sampler may count by batches"


def framework_of(torch_folder: str, ours: str) -> str | None:
    """The installed package whose code iterates the loader right now (called from ``__iter__``), or None: the
    script's own loop. torch's and our own frames do not count."""
    frame: Any = sys._getframe(1)
    for _ in range(_DEEPEST):
        path = frame.f_code.co_filename
        if not path.startswith((torch_folder, ours, "<cockpit", "<frozen")):
            for folder in ("site-packages", "dist-packages"):
                _, found, rest = path.partition(folder + os.sep)
                if found and not rest.startswith("tqdm"):
                    return str(rest.split(os.sep)[0])
                if found:
                    break
            else:
                return None
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None

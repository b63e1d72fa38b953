"""What a change of a loader's settings would need, and whether the machine has it: said while the change is queued.

Asked by the rows of loader knobs and for each change as it arrives, in the probe's thread; ``weigh`` by the hooks, once
an epoch. It forbids nothing: an estimate may be wrong, and a change that fails costs nothing. It must run no code of
the script, and say nothing about what it does not know.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from ..model.counts import counted
from ..model.knobs import LOADER_KNOBS, Value
from .asks import Ask, Asks
from .groups import Group, Refused, couple
from .memory_left import fields, memory_left
from .standard import standard
from .streams import TRAIN, LoaderRecord

resource = standard("resource")
FDS_PER_WORKER = 4
"""Descriptors that the training holds for each worker: two ends of its queue, its sentinel, one more at the start."""
FDS_KEPT_FREE = 32
FORKED_BYTES, STARTED_BYTES = 8 * 10**6, 150 * 10**6
"""What a worker holds at least, before any dataset of weight: the pages that a forked one writes to; a torch of its
own where it is started anew. Floors, meant to be too low rather than too high: a false alarm is believed once."""
DEEP = 4
WIDE = 64


class Weight(NamedTuple):
    """One batch: bytes in tensors, and how many tensors (each takes a descriptor while it is on its way)."""

    size: int
    tensors: int

    def resized(self, size: int, before: int) -> Weight:
        """Of ``size`` samples in the place of ``before``."""
        return self._replace(size=self.size * size // before)


class Machine(NamedTuple):
    """What is left here; None where it cannot be told."""

    shm_free: int | None
    fds_left: int | None
    memory_left: int | None
    worker_size: int | None
    """The largest of the workers that live now: what it holds for itself alone."""


class Preflight:
    """The rows of loader knobs, as far as they tell of what is queued; and what is said of a change beforehand.

    ``records`` are all loaders of the process; ``run`` is the guard's.
    """

    def __init__(self, asks: Asks, records: Mapping[str, LoaderRecord], run: Callable[..., Any]) -> None:
        self._asks = asks
        self._records = records
        self._worker_size: dict[str, int] = {}
        asks.foretellers.append(functools.partial(run, "preflight", self.foretell))

    def foretell(self, ask: Ask) -> str | None:
        """What ``ask`` alone would need and the machine does not have; None: nothing is known yet of its loaders."""
        knobs, size, found = ask.group_knobs, ask.knobs.get("batch_size"), dict[str, None]()
        meant = [record for record in list(self._records.values()) if _is_meant(ask, record)]
        if (knobs or size) and all(record.in_force is None for record in meant):
            return None
        for record in meant:
            if knobs:
                words = self._of(record, knobs, size)
            else:
                words = self.too_large(record, size) if isinstance(size, int) else None
            found.update(dict.fromkeys([words or ""]))
        return "; ".join(filter(None, found))

    def of(self, record: LoaderRecord) -> tuple[Mapping[str, Value], str | None]:
        """What waits for this loader's boundary, by knob, and what is to be known about it."""
        waiting: dict[str, Value] = {}
        size: Value | None = None
        for ask in list(self._asks.waiting):
            if _is_meant(ask, record) and ask.due is None and record.id not in ask.done_on:
                waiting.update({name: value for name, value in ask.knobs.items() if name in LOADER_KNOBS})
                size = ask.knobs.get("batch_size", size)
        return waiting, self._of(record, waiting, size) if waiting else None

    def too_large(self, record: LoaderRecord, size: int) -> str | None:
        """Why batches of ``size`` will not fit beside the workers that are there, or None. At a boundary only.

        A way back there is none: those are the script's own workers, and torch ends the training with them.
        """
        if record.in_force is None or not record.in_force.num_workers or not record.weight or not record.batch_size:
            return None
        return larger_batches(record.in_force, record.weight, size, record.batch_size, look(record.workers))

    def _of(self, record: LoaderRecord, knobs: Mapping[str, Value], size: Value | None) -> str | None:
        """Of the workers that are to be, with batches of the ``size`` that is to be (None: as they are)."""
        if record.in_force is None or record.script is None:
            return None
        try:
            group = couple(record.script, knobs, record.in_force)
        except Refused:
            return None
        machine = look(record.workers)
        # what its workers took when it had some is the best guess while it has none
        largest = max(machine.worker_size or 0, self._worker_size.get(record.id, 0))
        if largest:
            self._worker_size[record.id] = largest
        machine = machine._replace(worker_size=largest or None)
        weight = record.weight
        if weight is not None and record.batch_size and isinstance(size, int):
            weight = weight.resized(size, record.batch_size)
        return "; ".join(warnings(group, record.in_force, weight, machine, record.forks, record.weight)) or None


def _is_meant(ask: Ask, record: LoaderRecord) -> bool:
    return ask.loader == record.id or (ask.loader is None and record.role == TRAIN)


def weigh(data: Any) -> Weight | None:
    """The weight of a batch as it was handed out; None where no tensor is found in it."""
    found = list(_tensors(data, DEEP))
    return Weight(sum(found), len(found)) if found else None


def _tensors(data: Any, depth: int) -> Iterable[int]:
    kind = type(data)
    if (kind.__module__, kind.__name__) == ("torch", "Tensor"):
        yield int(data.nbytes)
    elif depth and isinstance(data, (list, tuple)):
        for item in data[:WIDE]:
            yield from _tensors(item, depth - 1)
    elif depth and kind is dict:
        for item in list(data.values())[:WIDE]:
            yield from _tensors(item, depth - 1)


def look(workers: Iterable[int]) -> Machine:
    """The machine as it is now, seen from the training's process; ``workers`` are the loader's."""
    sizes = [size for size in map(_private_bytes, workers) if size is not None]
    return Machine(_shm_free(), _fds_left(), memory_left(), max(sizes) if sizes else None)


def warnings(
    group: Group, before: Group, weight: Weight | None, machine: Machine, forks: bool = True, now: Weight | None = None
) -> list[str]:
    """Sentences about what ``group`` would need and the machine does not have; none where all is well or unknown.

    ``weight`` is that of a batch then, ``now`` that of one as they are, where it is another. ``forks``: whether new
    workers are forked.
    """
    now = weight if now is None else now
    found = (
        _shm(group, before, weight, now, machine),
        _fds(group, before, weight, machine),
        _memory(group, before, weight, now, machine, forks),
    )
    return [words for words in found if words]


def larger_batches(group: Group, weight: Weight, size: int, before: int, machine: Machine) -> str | None:
    """What batches of ``size`` instead of ``before`` would need and the machine does not have, or None."""
    return next(iter(warnings(group, group, weight.resized(size, before), machine, now=weight)), None)


def _in_flight(group: Group, batch: int) -> str:
    workers, batches = counted(group.num_workers, "worker"), counted(group.prefetch_factor or 0, "batch", "batches")
    return "%s × %s of %s" % (workers, batches, words_of(batch))


def _shm(group: Group, before: Group, weight: Weight | None, now: Weight | None, machine: Machine) -> str | None:
    if weight is None or now is None or machine.shm_free is None:
        return None
    # while it is brought into force the old workers' batches lie there too, and they do already
    needed = group.capacity * weight.size
    if needed <= max(machine.shm_free, before.capacity * now.size):
        return None
    what = _in_flight(group, weight.size)
    return "%s may need %s of /dev/shm, and %s are free" % (what, words_of(needed), words_of(machine.shm_free))


def _fds(group: Group, before: Group, weight: Weight | None, machine: Machine) -> str | None:
    if machine.fds_left is None or group.num_workers <= before.num_workers:
        return None
    tensors = weight.tensors if weight is not None else 1
    needed = group.num_workers * FDS_PER_WORKER + group.capacity * tensors
    left = max(0, machine.fds_left - FDS_KEPT_FREE)
    files = counted(needed, "more open file")
    return "it may need %s, and %d are left (ulimit -n)" % (files, left) if needed > left else None


def _memory(
    group: Group, before: Group, weight: Weight | None, now: Weight | None, machine: Machine, forks: bool
) -> str | None:
    if machine.memory_left is None:
        return None
    more = max(0, group.num_workers - before.num_workers)
    batch, old = (0 if each is None else each.size for each in (weight, now))
    # each holds the samples of a batch and the batch made of them: that much is certain before any worker was seen
    grown = 2 * max(0, batch - old)
    least = (FORKED_BYTES if forks else STARTED_BYTES) + 2 * batch
    size = max((machine.worker_size or 0) + grown, least)
    ready = max(0, group.capacity * batch - before.capacity * old)  # /dev/shm is memory too
    staying = (group.num_workers - more) * grown
    if more * size + staying + ready <= machine.memory_left:
        return None
    left = words_of(machine.memory_left)
    if not more:
        needed = words_of(staying + ready)
        return "%s may need %s of memory more, and %s are left" % (_in_flight(group, batch), needed, left)
    words = "of" if size == machine.worker_size else "of at least"
    and_batches = ", and %s of batches ready" % words_of(ready) if ready else ""
    workers = counted(more, "more worker")
    return "%s %s %s each%s: %s of memory are left" % (workers, words, words_of(size), and_batches, left)


def words_of(size: int) -> str:
    """Bytes as people say them."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return "%.0f %s" % (value, unit) if value >= 10 or unit == "B" else "%.1f %s" % (value, unit)


def _shm_free() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _fds_left() -> int | None:
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return None
    try:
        return max(0, soft - len(os.listdir("/proc/self/fd")))
    except OSError:
        return None


def _private_bytes(pid: int) -> int | None:
    found = fields("/proc/%d/smaps_rollup" % pid)
    known = [found[name] * 1024 for name in ("Private_Dirty:", "Private_Clean:") if name in found]
    return sum(known) if known else None

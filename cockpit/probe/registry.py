"""Names the DataLoaders of this process by where the script made them, and keeps one record for each name.

Asked by the hooks when a loader is made and when it is first iterated. One that is made anew each epoch stays one
loader, and what a framework makes of the script's own goes by the script's line. It keeps no DataLoader alive.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

from .lengths import MOST, Asker
from .streams import OTHER, TRAIN, LoaderRecord

TWINS = 4
"""So many loaders of one line are told apart before they begin to share names."""


class _Made:
    """One DataLoader object: where it was made, its name once it has one, its LoaderControl once it needs one."""

    __slots__ = (
        "asked", "asking", "batch", "control", "decided", "key", "met", "name", "opens", "place", "ref", "root",
        "times",
    )  # fmt: skip

    def __init__(self, ref: weakref.ref[Any], place: str) -> None:
        self.ref = ref
        self.place = place
        self.name: str | None = None
        self.root: _Made | None = None
        self.met = False
        self.control: Any = None
        self.asked: str | None = None
        self.asking: set[Asker] = set()
        self.decided = False
        self.times = 0
        self.batch: Any = None
        self.key: tuple[str, bool, int] = (place, False, 0)
        """What knows it again in another process: place, whether made inside an epoch, how many were made there before
        it."""
        self.opens: Callable[[Any], Any] | None = None
        """Makes of torch's ``__iter__`` what opens it the first time, where that must not be the first time."""


class Registry:
    """Names DataLoaders: ``constructed`` when one is made, ``record_of`` when it is first iterated.

    Naming waits for the first ``__iter__`` since a loader that is made anew in the epoch loop still has its
    former self alive while it is constructed. Keyed by ``id``: a loader need not be hashable.
    """

    def __init__(self) -> None:
        self.records: dict[str, LoaderRecord] = {}
        self.counted: dict[str, tuple[int, int]] = {}
        """``epochs_before`` and ``epochs`` of loaders that an earlier process of this run has known, by name."""
        self.handed: dict[str, int] = {}
        """The batch sizes that it has kept there, beside the script's own."""
        self._made: dict[int, _Made] = {}
        self._inside = False
        self._at_place: dict[str, int] = {}

    def constructed(self, loader: Any, place: str) -> _Made:
        """``loader`` was made at ``place``; loaders are remembered in the order they were made."""
        key, made = id(loader), self._made
        made.pop(key, None)
        entry = made[key] = _Made(weakref.ref(loader, lambda _: made.pop(key, None)), place)
        nth = self._at_place[place] = self._at_place.get(place, -1) + 1
        entry.key = (place, self._inside, nth)
        return entry

    def epoch_begins(self) -> None:
        """The script's own loop over epochs says so: loaders made from here on are counted anew at each place."""
        self._inside, self._at_place = True, {}

    def key_of(self, loader: Any) -> tuple[str, bool, int] | None:
        """What knows ``loader`` again in another process."""
        return self._made[id(loader)].key if self.known(loader) else None

    def living(self) -> list[tuple[Any, tuple[str, bool, int], bool]]:
        """Each DataLoader that is still there, its key, and whether it was ever iterated, be it in the process before;
        in the order made."""
        entries = list(self._made.values())
        found = [(entry.ref(), entry.key, entry.met or entry.opens is not None) for entry in entries]
        return [each for each in found if each[0] is not None]

    def goes_on(self, loader: Any, opens: Callable[[Any], Any]) -> None:
        """The first ``__iter__`` of ``loader`` is ``opens(original)``."""
        self._made[id(loader)].opens = opens

    def opening(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """What opens ``loader`` now."""
        entry = self._made.get(id(loader))
        if entry is None or entry.opens is None:
            return original
        opens, entry.opens = entry.opens, None
        return opens(original)

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
        record = self.records.get(name)
        if record is None:
            record = self.records[name] = LoaderRecord(name)
            record.epochs_before, record.epochs = self.counted.pop(name, (0, 0))
            record.handed = self.handed.pop(name, None)
        fresh, entry.met = not entry.met or record.loader is not entry.ref, True
        record.loader, record.asked_length = entry.ref, record.asked_length or entry.asked
        asking, entry.asking, entry.times = entry.asking, set(), 0
        record.lengths.heard(asking, record.iterators)
        return record, fresh

    def length_asked(self, loader: Any, by: Asker, decides: bool) -> None:
        """``by`` has called ``len(loader)``. The first is told of, but who ``decides`` by it before who shows it."""
        if not self.known(loader):
            return
        entry = self._made[id(loader)]
        if decides:
            entry.asking.add(by)
        if entry.asked is None or (decides and not entry.decided):
            entry.asked, entry.decided = by.words, decides
            if entry.name in self.records:
                self.records[entry.name].asked_length = by.words

    def asks_again(self, loader: Any) -> bool:
        """Whether its length was asked for so often since its last ``__iter__`` that nobody has to look who does."""
        entry = self._made.get(id(loader))
        if entry is None:
            return True
        entry.times += 1
        return entry.times > MOST

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

    def shares_batches(self, loader: Any) -> bool:
        """Whether another DataLoader has its batches cut by the same batch sampler."""
        others = [entry.ref() for entry in list(self._made.values())]
        return any(
            other is not None and other is not loader and other.batch_sampler is loader.batch_sampler
            for other in others
        )

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

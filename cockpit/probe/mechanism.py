"""What the swap needs from the torch at hand, looked up and checked once: classes to build on, private names.

Made by ``install(torch)``, used by control and chain. It must notice a torch that it does not know: one missing
private name turns all loader knobs off, with the name as the reason, before anything has been touched.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, Callable

from . import anew, orphans, sending
from .feed import Feed
from .groups import Group
from .held import HeldWatch
from .patience import Patience
from .reach import names_in
from .recipes import Recipe
from .sources import Gate, MultiSource, SingleSource, Source
from .stuck import StuckWatch
from .workers import ENDING_S, abandon

PRIVATE_NAMES = {
    "DataLoader": "__iter__ _get_iterator _index_sampler _auto_collation _iterator _dataset_kind"
    " _IterableDataset_len_called",
    "_BaseDataLoaderIter": "__next__ _next_data _next_index _reset _sampler_iter _base_seed _index_sampler"
    " _num_yielded _pin_memory _profile_name _dataset_kind",
    "_SingleProcessDataLoaderIter": "_next_data _dataset_fetcher",
    "_MultiProcessingDataLoaderIter": "_next_data _reset _get_data _try_get_data _try_put_index _process_data"
    " _shutdown_workers _mark_worker_as_unavailable _task_info _send_idx _workers _workers_status _index_queues"
    " _data_queue _worker_result_queue"
    " _workers_done_event _worker_pids_set _shutdown _prefetch_factor _in_order _persistent_workers"
    " _pin_memory_thread _pin_memory_thread_done_event",
}
"""What the swap leans on; a name counts as there if a class has it or a method of it speaks of it."""

CALLS = (
    ("_BaseDataLoaderIter", "__next__", "_next_data"),
    ("_SingleProcessDataLoaderIter", "_next_data", "_next_index"),
    ("_MultiProcessingDataLoaderIter", "_try_put_index", "_next_index"),
    ("_MultiProcessingDataLoaderIter", "_reset", "_try_put_index"),
    ("_MultiProcessingDataLoaderIter", "_next_data", "_get_data"),
    ("_MultiProcessingDataLoaderIter", "_get_data", "_try_get_data"),
)
"""Who must go through whom (class, method, callee), or what we put in their place would never be asked."""


class FrontPart:
    """Mixed into torch's base iterator: what a script holds in an epoch whose settings are not its own."""

    def _shutdown_workers(self) -> None:
        # scripts and frameworks call this on iterators that they leave early
        chain = self.__dict__.get("_next_data")
        if chain is not None:
            chain.close()


class Mechanism:
    """The torch at hand, as the swap sees it. ``off``: why nothing can be swapped here, or None."""

    def __init__(self, torch: Any, clock: Callable[[], int]) -> None:
        self.torch = torch
        self.clock = clock
        self.wrapper = getattr(getattr(torch, "_utils", None), "ExceptionWrapper", None)
        self.patience_s: float | None = None
        self.stuck = StuckWatch()
        self.held = HeldWatch(torch, clock)
        self.run: Callable[..., Any] = _unguarded
        """``Guard.run``: what looks at things of the script's must not raise into it."""
        self.fetches: Callable[[], int] = lambda: 0
        """How many batches the script has got so far, of any loader."""
        self.making: Any = None
        """The source whose workers are being started just now, where the script has not asked for them."""
        self.off: str | None = None
        data = torch.utils.data.dataloader
        self.off = missing(data)
        if self.off is not None:
            return
        self._data = data
        self.loader_class = data.DataLoader
        self.base_class = data._BaseDataLoaderIter
        self.torch_multi = data._MultiProcessingDataLoaderIter
        self.torch_single = data._SingleProcessDataLoaderIter
        self.iterable_kind = data._DatasetKind.Iterable
        table = data._utils.signal_handling
        self.gate = Gate(table._set_worker_pids, _tolerant(table._remove_worker_pids))
        self.multi: Any = type("MultiSource", (MultiSource, self.torch_multi), {})
        self.single: Any = type("SingleSource", (SingleSource, self.torch_single), {})
        self.front: Any = type("Front", (FrontPart, self.base_class), {})

    def has_accelerator(self) -> bool:
        """Whether this torch sees a device that pinned memory would help."""
        accelerator = getattr(self.torch, "accelerator", None)
        return accelerator is not None and bool(accelerator.is_available())

    def generator(self) -> Any:
        """A generator that nobody but us draws from."""
        return self.torch.Generator()

    def patience(self) -> Patience:
        """For one loader; ``patience_s`` is for those who cannot wait a minute, such as tests."""
        return Patience(self.patience_s)

    def build(self, recipe: Recipe, group: Group, seed: int, feed: Feed, script: Group, patience: Patience) -> Any:
        """A new source, its workers started and fed. What it raises leaves ``feed`` as it was, and nothing alive.

        Under the script's own settings torch's handling of a dying worker stays exactly as it is.
        """
        kind = self.multi if group.num_workers else self.single
        source = kind.__new__(kind)
        source.prepare(group, seed, feed, recipe, self.gate if group != script else None, patience)
        source.mark = orphans.new_mark()
        try:
            self.making = source if group != script else None
            with Unsaid(self._data):
                source.__init__(self._for_workers(recipe, group, script))
        except BaseException:
            self.abandon(source)
            feed.give_back(source.undelivered())
            raise
        finally:
            self.making = None
        source._index_sampler = recipe.index_sampler
        if group.num_workers and group != script:
            self.stuck.add(source)
        return source

    def _for_workers(self, recipe: Recipe, group: Group, script: Group) -> Any:
        view = self.view(recipe, group)
        if group.num_workers and not script.num_workers:
            view.multiprocessing_context = anew.given(self.torch, view)
            view.collate_fn = sending.instead_of(self.torch, view.collate_fn, view._auto_collation)
        return view

    def view(self, recipe: Recipe, group: Group) -> Any:
        """The loader as a source of ``group`` shall see it: nothing to iterate, nothing of the script's to draw."""
        pinned = group._replace(pin_memory=group.pin_memory and self.has_accelerator())
        return recipe.view(pinned, self.generator(), ())

    def abandon(self, source: Any) -> None:
        # who has been waited for long enough is not waited for again
        abandon(source, self.gate.leave, 0.0 if getattr(source, "given_up", None) else ENDING_S)


def _unguarded(name: str, work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


def _tolerant(leave: Callable[[int], None]) -> Callable[[int], None]:
    """``leave`` that does not mind whoever has not entered, or has left already."""

    def left(key: int) -> None:
        with suppress(ValueError):
            leave(key)

    return left


class Unsaid:
    """While it is entered, torch's loader module warns nobody in this thread: a change that fails is told as one.

    Only that module's own name for ``warnings`` is lent out; filters and what has been warned of stay untouched.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._thread = threading.get_ident()
        self._warnings: Any = None

    def __enter__(self) -> None:
        current = getattr(self._data, "warnings", None)
        # two threads may build at once and leave in any order: each puts back the real one
        self._warnings = current._warnings if isinstance(current, Unsaid) else current
        if self._warnings is not None:
            self._data.warnings = self

    def __exit__(self, *_: Any) -> None:
        if self._warnings is not None:
            self._data.warnings = self._warnings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_warnings"], name)

    def warn(self, *words: Any, **more: Any) -> None:
        """As ``warnings.warn`` in every other thread."""
        if threading.get_ident() != self._thread:
            self._warnings.warn(*words, **more)


def install(torch: Any, clock: Callable[[], int] = time.perf_counter_ns) -> Mechanism:
    """Looks at ``torch`` and changes nothing in it."""
    return Mechanism(torch, clock)


def is_source(iterator: Any) -> bool:
    """Whether this is one of our inner sources, which no script ever holds."""
    return isinstance(iterator, Source)


def missing(dataloader: Any) -> str | None:
    """A sentence about the first private name or call that this torch lacks, or None."""
    for owner, names in PRIVATE_NAMES.items():
        cls = getattr(dataloader, owner, None)
        if cls is None:
            return "this torch has no %s" % owner
        known = spoken_of(cls)
        for name in names.split():
            if name not in known:
                return "this torch has no %s.%s" % (owner, name)
    for owner, method, callee in CALLS:
        code = getattr(getattr(getattr(dataloader, owner), method), "__code__", None)
        wrapped = getattr(getattr(dataloader, owner), method)
        while hasattr(wrapped, "__wrapped__"):  # a patch of the probe's own hooks, or of another tool
            wrapped = wrapped.__wrapped__
            code = getattr(wrapped, "__code__", code)
        if code is None or callee not in set(names_in(code)):
            return "this torch's %s.%s does not call %s" % (owner, method, callee)
    for name in ("_set_worker_pids", "_remove_worker_pids"):
        if not hasattr(getattr(dataloader._utils, "signal_handling", None), name):
            return "this torch has no _utils.signal_handling.%s" % name
    return None


def spoken_of(cls: type) -> set[str]:
    """Every name that a class has, or that the code of one of its methods mentions."""
    names: set[str] = set()
    for owner in cls.__mro__[:-1]:
        for name, member in vars(owner).items():
            names.add(name)
            for part in (member, getattr(member, "fget", None), getattr(member, "__func__", None)):
                while part is not None:
                    names.update(names_in(getattr(part, "__code__", None)))
                    part = getattr(part, "__wrapped__", None)
    return names

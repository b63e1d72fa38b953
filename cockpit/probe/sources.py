"""What loads batches behind a managed iterator: torch's own two iterator classes, fed from a Feed.

Made by the mechanism from the torch that it is handed; used by the chain. A source is never handed to a script.
It must draw from nothing that the script can see, and ending it must never wait without an end.
"""

from __future__ import annotations

from multiprocessing.util import is_exiting
from threading import get_ident, main_thread
from time import monotonic
from types import SimpleNamespace
from typing import Any, Callable, NamedTuple

from .feed import Feed
from .groups import Group
from .oom_kills import oom_kills
from .patience import GivenUp, Patience
from .recipes import Recipe
from .workers import abandon, dismiss, end_in_time, facts_of, live_pids, mind_thread, ready_in

POLL_S = 0.5
"""How long a fetch waits before it looks whether a worker is still alive."""


class Gate(NamedTuple):
    """torch's table of workers whose death raises in the main thread, wherever that is: by an iterator's id."""

    enter: Callable[[int, tuple[int, ...]], None]
    leave: Callable[[int], None]


class Source:
    """Mixed into torch's iterator classes: indices from a feed, a given base seed, a record of what is on its way.

    ``sent``: indices taken from the feed and not yet delivered, by task number, oldest first (map-style only).
    ``user`` is the chain, held weakly, that reads from it. ``waiting`` stays true when the wait for the workers
    raised: that is the machinery, not the dataset.
    ``gate``, where set, keeps the workers out of torch's table for SIGCHLD but during our own fetch: the death of
    one then raises there, and not in whatever the training is doing at that moment. ``patience`` says when
    workers that give nothing are given up.
    """

    feed: Feed | None
    group: Group
    user: Callable[[], Any]

    def prepare(
        self,
        group: Group,
        seed: int,
        feed: Feed,
        recipe: Recipe,
        gate: Gate | None,
        patience: Patience,
    ) -> None:
        self.group, self.seed, self.feed, self.gate = group, seed, feed, gate
        self.patience = patience
        self.records = not recipe.iterable
        self.batched = bool(recipe.fields["_auto_collation"])
        self.sent: dict[int, Any] = {}
        self.delivered = 0
        self.samples: int | None = None
        self.waiting = False

    @property
    def _base_seed(self) -> int:
        return self.seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        """torch draws one while it builds (from a generator of ours): the chain has decided already."""

    def __reduce__(self) -> tuple[Any, ...]:
        # a persistent source hangs on the loader: copies and pickles of the loader carry None instead
        return type(None), ()

    @property
    def in_trial(self) -> bool:
        """Whether it has yet to show that it works: each worker has delivered about once by the end of it."""
        return self.delivered < max(1, self.group.capacity)

    def undelivered(self) -> list[Any]:
        """The indices that were taken and never reached the script, in the order of the sampler."""
        return list(self.sent.values())

    def count(self, key: int) -> None:
        index = self.sent.pop(key, None)
        self.samples = len(index) if self.batched and hasattr(index, "__len__") else None
        self.delivered += 1

    def fetch(self) -> Any:
        """The next batch. Raises StopIteration at the end, and whatever the script's dataset raises."""
        raise NotImplementedError

    def settle(self) -> None:
        """The exception just raised goes to the script instead of its batch: that index is done."""
        raise NotImplementedError

    def failing(self) -> Any:
        """The index of the batch that has just raised."""
        raise NotImplementedError

    def dismiss(self) -> None:
        """Nothing is left to do here: workers, where there are any, are told to end and not waited for."""

    def close(self) -> None:
        """Ends workers, where there are any, as torch does, and waits for them."""


class SingleSource(Source):
    """Loads in the training's own thread."""

    in_flight = 0
    pids: tuple[int, ...] = ()
    _num_workers: int
    _pin_memory: bool

    def _next_index(self) -> Any:
        assert self.feed is not None
        index = next(self.feed)
        if self.records:
            self.sent[0] = index
        return index

    def fetch(self) -> Any:
        began_s = monotonic()
        data = self._next_data()  # type: ignore[attr-defined]
        self.patience.saw(monotonic() - began_s)
        self.count(0)
        return data

    def settle(self) -> None:
        self.sent.clear()

    def failing(self) -> Any:
        return self.sent.get(0)

    def facts(self) -> Group:
        """What is really in force here; without workers the order is the sampler's whatever is asked."""
        return self.group._replace(pin_memory=self._pin_memory)

    def ready(self) -> int | None:
        return None


class MultiSource(Source):
    """Loads in worker processes, which torch starts and stops; the waiting is ours, in short pieces."""

    _task_info: dict[int, Any]
    _send_idx: int
    _workers: list[Any]
    _workers_status: list[bool]
    _shutdown: bool
    _worker_pids_set: bool
    _index_sampler: Any
    fruitless_s = 0.0
    polls = 0
    polling = False
    given_up: str | None = None
    """Why ``StuckWatch`` has ended the workers, where it has; ``polls`` and ``polling`` are what it looks at."""
    oom_kills: int | None = None
    """How many processes had been ended for lack of memory when this epoch began."""

    def _next_index(self) -> Any:
        if self.feed is None:  # nobody's epoch: torch resets it by itself
            return super()._next_index()  # type: ignore[misc]
        index = self.feed.ahead()
        if self.records:
            self.sent[self._send_idx] = index
        return index

    def fetch(self) -> Any:
        data = self._minded(self._next_data)  # type: ignore[attr-defined]
        self.settle()
        self.delivered += 0 if self.records else 1
        return data

    def settle(self) -> None:
        for key in self.sent:  # in order: the first one; else: the one that torch no longer lists
            if key not in self._task_info:
                self.count(key)
                return

    def failing(self) -> Any:
        return next((index for key, index in self.sent.items() if key not in self._task_info), None)

    @property
    def in_flight(self) -> int:
        return len(self._task_info)

    @property
    def pids(self) -> tuple[int, ...]:
        return live_pids(self)

    def refill(self, feed: Feed, view: SimpleNamespace) -> None:
        """The next epoch of persistent workers. Raises RuntimeError where one of them has died meanwhile."""
        self.feed, own = feed, self._index_sampler
        self.sent.clear()
        self._index_sampler = ()  # torch iterates it here: the script's sampler has been iterated already
        try:
            self._minded(self._reset, view)
        finally:
            self._index_sampler = own

    def _minded(self, work: Callable[..., Any], *args: Any) -> Any:
        """``work``, with workers that have died before raising here. Their records stay as they are until ``work`` is
        done, so that nothing is lost wherever it raises."""
        self.waiting, self.fruitless_s = True, 0.0
        if self.gate is not None:
            status = self._workers_status
            dead = [str(w.pid) for w, active in zip(self._workers, status) if active and not w.is_alive()]
            if dead:
                raise RuntimeError("DataLoader worker (pid(s) %s) exited unexpectedly" % ", ".join(dead))
        self.waiting = False
        return work(*args)

    def _poll(self, timeout: float) -> tuple[bool, Any]:
        """One piece of the wait. Only here does a death raise through the signal of torch's: nothing is taken from the
        feed meanwhile, so nothing can be lost with it."""
        self.polls, self.polling = self.polls + 1, True
        gate = self.gate if get_ident() == main_thread().ident else None
        try:
            if gate is not None:
                self._worker_pids_set = True  # said before it is so: a death may raise right after
                gate.enter(id(self), tuple(worker.pid for worker in self._workers))
            found: tuple[bool, Any] = super()._try_get_data(timeout)  # type: ignore[misc]
        finally:
            self.polling = False
            if gate is not None:  # without a gate the entry is torch's own, which torch takes back at the end
                gate.leave(id(self))
                self._worker_pids_set = False
        return found

    def dismiss(self) -> None:
        dismiss(self)

    def close(self) -> None:
        self._shutdown_workers()

    def _shutdown_workers(self) -> None:
        # torch waits for ever: for its pinning thread, a worker that minds nothing, a lock that a killed one has kept
        if self.gate is None:
            super()._shutdown_workers()  # type: ignore[misc]
        elif not self._shutdown and not is_exiting():  # then multiprocessing ends them, without waiting
            end_in_time(self)
            abandon(self, self.gate.leave, 0.0)

    def _mark_worker_as_unavailable(self, worker_id: int, shutdown: bool = False) -> None:
        if self.gate is None:
            super()._mark_worker_as_unavailable(worker_id, shutdown)  # type: ignore[misc]
        else:
            self._workers_status[worker_id] = False  # torch would take that lock

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if first_iter and self.gate is not None:
            self.gate.leave(id(self))
            self._worker_pids_set = False
            mind_thread(self)  # it has nothing to read yet
        if self.gate is not None:
            self.oom_kills = oom_kills()
        super()._reset(loader, first_iter)  # type: ignore[misc]

    def _get_data(self) -> Any:
        self.waiting = True
        data = super()._get_data()  # type: ignore[misc]
        self.waiting = False
        return data

    def _try_get_data(self, timeout: float = POLL_S) -> tuple[bool, Any]:
        found: tuple[bool, Any] = (False, None)
        while not found[0] and timeout > 0:
            found = self._poll(min(timeout, POLL_S))
            timeout -= POLL_S
            if found[0]:
                self.patience.saw(self.fruitless_s)
            # counted in polls, not by the clock: a training that was suspended has not waited
            self.fruitless_s = 0.0 if found[0] else self.fruitless_s + POLL_S
        # a stream cannot be asked again for what it has given: there is no way back once it has begun
        may = not found[0] and self.gate and (self.records or not self.delivered)
        if may and self.patience.is_over(self.fruitless_s):
            self.given_up = words = "the workers have given nothing for %.0f s" % self.fruitless_s
            raise GivenUp(words)
        return found

    def facts(self) -> Group:
        return facts_of(self)

    def ready(self) -> int | None:
        return ready_in(self)

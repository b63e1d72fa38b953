"""The worker processes behind an iterator, torch's own or ours: counted, told to end, ended.

Called by sources, chain and control. It must never wait for a worker without an end, and never lose more time by one
that is not well than torch itself would.
"""

from __future__ import annotations

import itertools
import re
import signal
import sys
import time
import weakref
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from . import orphans
from .groups import Group
from .oom_kills import killed_words, oom_kills
from .outcomes import why

REAP_S = 0.5
"""How long a killed worker is waited for, so that no zombie stays."""
ENDING_S = 5.0
"""How long workers that have been told to end may take in all, as torch grants each of them."""
DYING_S = 0.2
"""How long a worker that has let go of its pipes may take until it is seen to be dead."""


class UntouchedWorkers:
    """torch's own iterator, which the script holds, while it hands out what it had begun before a swap."""

    records = in_trial = False
    samples = None
    group: Group | None = None

    def __init__(self, front: Any) -> None:
        self._front = weakref.ref(front)

    def fetch(self) -> Any:
        front: Any = self._front()
        return type(front)._next_data(front)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._front(), name)  # whoever looks at its tasks sees those of the iterator

    def settle(self) -> None:
        """torch keeps its own books."""

    @property
    def in_flight(self) -> int:
        return len(getattr(self._front(), "_task_info", ()))

    @property
    def pids(self) -> tuple[int, ...]:
        return live_pids(self._front())

    def ready(self) -> int | None:
        return ready_in(self._front())

    def dismiss(self) -> None:
        dismiss(self._front())

    def close(self) -> None:
        front: Any = self._front()
        if hasattr(front, "_shutdown_workers"):
            front._shutdown_workers()


def live_pids(iterator: Any) -> tuple[int, ...]:
    """Process ids of the workers of ``iterator`` that are alive."""
    return tuple(worker.pid for worker in getattr(iterator, "_workers", ()) if worker.is_alive())


def facts_of(iterator: Any) -> Group:
    """What is really in force in one of torch's iterators, or one of ours."""
    workers = live_pids(iterator)
    thread = getattr(iterator, "_pin_memory_thread", None)
    return Group(
        num_workers=len(workers),
        prefetch_factor=getattr(iterator, "_prefetch_factor", None) if workers else None,
        pin_memory=bool(iterator._pin_memory and (thread is None or thread.is_alive())),
        persistent_workers=bool(iterator._persistent_workers and workers),
        in_order=bool(getattr(iterator, "_in_order", True)),
    )


def ready_in(iterator: Any) -> int | None:
    """Batches that lie ready in a multi-process iterator; None where the platform cannot tell."""
    try:
        ready = int(iterator._data_queue.qsize())
        if iterator._data_queue is not iterator._worker_result_queue:
            ready += int(iterator._worker_result_queue.qsize())
    except (AttributeError, NotImplementedError, OSError, ValueError):  # no workers, no qsize, just closed
        return None
    # a copy of the values in one step of the interpreter: the training's thread goes on meanwhile
    return ready + sum(1 for info in list(iterator._task_info.values()) if len(info) == 2)


def dismiss(iterator: Any) -> None:
    """Tells workers that have nothing left to do to end, without waiting: the joining comes one step later."""
    if iterator is None or not getattr(iterator, "_workers", None) or iterator._shutdown:
        return
    orphans.take(iterator)
    tell_to_end(iterator)


def tell_to_end(iterator: Any) -> None:
    """Each worker finishes the batch that it has in hand, and begins no other."""
    event = iterator._workers_done_event
    lock, flag = getattr(event, "_cond", None), getattr(event, "_flag", None)
    if lock is None or flag is None:
        event.set()
    elif lock.acquire(True, DYING_S):  # a worker that was killed while it looked at the event keeps this for ever
        flag.acquire(False)
        flag.release()
        lock.release()
    for line in iterator._index_queues:
        line.put(None)


def end_in_time(source: Any) -> None:
    """Tells the pinning thread and the workers of ``source`` to end, and waits for them ``ENDING_S`` at most."""
    until_s = time.monotonic() + ENDING_S
    thread = getattr(source, "_pin_memory_thread", None)
    if thread is not None:  # first: it may be reading a message, which its worker has yet to finish
        source._pin_memory_thread_done_event.set()
        source._worker_result_queue.put((None, None))
        thread.join(ENDING_S)
    if thread is None or not thread.is_alive():
        dismiss(source)
        _await([worker.sentinel for worker in source._workers], until_s)


def abandon(source: Any, forget_pids: Any, patience_s: float) -> None:
    """Ends a source whole, half built or not: workers that are well may finish the batch in hand, for ``patience_s``
    at most in all; then all are killed, and the queues closed.

    One that is killed in the middle of a sample leaves half a file in the dataset's cache, or its lock taken.
    ``forget_pids`` takes it out of torch's table for SIGCHLD, so that the ends are not taken for accidents.
    """
    forget_pids(id(source))  # whatever it says of itself: a death may have raised right after it was entered
    source._worker_pids_set = False
    source._shutdown = True  # torch's own shut-down, from __del__, finds nothing to do
    workers = getattr(source, "_workers", [])
    orphans.take(source)
    try:
        if patience_s and workers:
            with suppress(OSError, RuntimeError, AttributeError):  # no thread or descriptor left; half built
                tell_to_end(source)
                _await([worker.sentinel for worker in workers], time.monotonic() + patience_s)
    finally:
        _end_at_once(source, workers)
        orphans.end(source)


def _end_at_once(source: Any, workers: list[Any]) -> None:
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=REAP_S)
    thread = getattr(source, "_pin_memory_thread", None)
    if thread is not None:
        source._pin_memory_thread_done_event.set()  # it looks every 5 s and holds the result queue until then
        thread._invoke_excepthook = _nothing_to_say  # the batch that it was reading has lost its worker
    queues = getattr(source, "_index_queues", [])
    for line in itertools.chain(queues, [] if thread else [getattr(source, "_worker_result_queue", None)]):
        if line is not None:
            line.cancel_join_thread()
            line.close()


def _await(sentinels: list[int], until_s: float) -> None:
    """Until all of these processes have ended, or until then."""
    left, ended = set(sentinels), [0]
    while left and ended:
        ended = connection.wait(list(left), timeout=max(0.0, until_s - time.monotonic()))  # type: ignore[assignment]
        left.difference_update(ended)


def _nothing_to_say(*_: Any) -> None:
    """In place of a traceback on the script's stderr: what has happened is told as a change that was rolled back."""


def mind_thread(source: Any) -> None:
    """The script has not asked for the thread that pins memory here: what it dies of is kept as the reason."""
    thread = getattr(source, "_pin_memory_thread", None)
    if thread is None:
        return
    holder = weakref.ref(source)

    def ended(*_: Any) -> None:
        pinned, error = holder(), sys.exc_info()[1]
        if pinned is not None and isinstance(error, Exception):
            pinned.unpinned = "the thread that pins memory has died: %s" % why(error)

    thread._invoke_excepthook = ended


def is_about(error: BaseException, iterator: Any) -> bool:
    """Whether torch's handler for SIGCHLD has raised ``error`` for a worker of ``iterator``."""
    named = (
        re.search(r"DataLoader worker \(pid(?:\(s\))? (\d+)\)", str(error)) if isinstance(error, RuntimeError) else None
    )
    return named is not None and int(named.group(1)) in [worker.pid for worker in getattr(iterator, "_workers", ())]


def obituary(iterator: Any) -> str | None:
    """What became of the worker that has died, or is dying just now, in words, or of the thread that pins what they
    give; None where all live."""
    given_up: str | None = getattr(iterator, "given_up", None)
    if given_up is not None:
        return given_up
    workers = {worker.sentinel: worker for worker in getattr(iterator, "_workers", ())}
    for sentinel in connection.wait(list(workers), timeout=DYING_S) if workers else ():
        worker: Any = workers[sentinel]
        worker.join(timeout=REAP_S)
        status = worker.exitcode
        if status is None:
            return "a worker (pid %d) has died" % worker.pid
        if status >= 0:
            return "a worker (pid %d) exited with status %d" % (worker.pid, status)
        number = signal.Signals(-status)
        hint = ""
        if number == signal.SIGKILL:
            hint = killed_words(getattr(iterator, "oom_kills", None), oom_kills())
        elif number == signal.SIGBUS:
            hint = ": likely out of shared memory (/dev/shm)"
        return "a worker (pid %d) was killed by %s%s" % (worker.pid, number.name, hint)
    unpinned: str | None = getattr(iterator, "unpinned", None)
    return unpinned

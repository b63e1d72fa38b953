"""What lies ready as a batch is asked for, and what a wait for it is called. Asked by the hooks a few times a second.

In the script's thread only: the queues belong to an iterator that no other thread may hold.
"""

from __future__ import annotations

from typing import Any

from .streams import Stream
from .swap import chain_of


def look_at_queue(stream: Stream, iterator: Any) -> tuple[tuple[int, int] | None, str | None]:
    """(ready, capacity) of the queue, and the kind of wait that follows; None without workers."""
    queue = None if stream.control is None else stream.control.queue(iterator)
    if queue is None:
        return None, None
    chain = chain_of(iterator)
    serving = iterator if chain is None else (chain.draining[0] if chain.draining else chain.live)
    return queue, wait_kind(serving, queue[0])


def wait_kind(source: Any, ready: int) -> str:
    """``starved``: nothing is ready; ``head``: others are, the next in order is not; else ``hand_over``."""
    tasks = getattr(source, "_task_info", None)
    if not ready:
        return "starved"
    if not tasks:
        return "hand_over"
    lying = sum(len(info) == 2 for info in list(tasks.values()))
    head = tasks.get(source._rcvd_idx, ())
    return "head" if len(head) == 1 and lying == ready and source._in_order else "hand_over"

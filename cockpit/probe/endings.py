"""What the end of an epoch shows about its loader, at once: before the script changes anything for the next one.

Called in place of ``Batching.epoch_over``. It must do nothing where an iterator was merely dropped, for that happens
anywhere.
"""

from __future__ import annotations

from typing import Any, Callable

from .streams import Stream


class Endings:
    """``first`` is told of each end before this looks at it."""

    def __init__(self, first: Callable[[Stream], Any]) -> None:
        self._first = first

    def over(self, stream: Stream) -> None:
        """An iterator of a loader is used up or left."""
        self._first(stream)
        record, control = stream.record, stream.control
        if not stream.used_up or control is None or not stream.batches:
            return
        if record.kind == "iterable" and not stream.unsized:
            control.dataset.served(control.in_force.num_workers, stream.samples)
        if not stream.behind:  # else the script has gone on since
            control.look_within()

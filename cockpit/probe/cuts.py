"""A batch sampler's indices, cut to batches of a size that may change on the way.

What a feed reads in an epoch whose batch size is not the script's own, or may become it again. It asks the sampler as
torch's own BatchSampler does: not before the first batch is wanted, and not once more than that would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any


class Cuts:
    """``own`` is the size that the script has. What no batch could be filled with (``drop_last``) may fill a smaller
    one, so it is not thrown away before the epoch is over."""

    def __init__(self, batch_sampler: Any, size: int, own: int) -> None:
        self._sampler = batch_sampler.sampler
        self._drops = bool(batch_sampler.drop_last)
        self._indices: Iterator[Any] | None = None
        self._read = 0
        self._over: list[Any] = []
        self._again: list[Any] = []
        self.size, self._own = size, own

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        if self._indices is None:
            self._indices = iter(self._sampler)
        batch, self._again = self._again[: self.size], self._again[self.size :]
        for index in islice(self._indices, self.size - len(batch)):
            self._read += 1
            batch.append(index)
        if not batch or (self._drops and len(batch) < self.size):
            self._over += batch
            raise StopIteration
        return batch

    def recut(self, size: int | None, batches: Iterable[Iterable[Any]]) -> None:
        """From here on batches of ``size`` (None: the script's own): of what ``batches`` had, then of the rest."""
        self.size = self._own if size is None else size
        self._again = [*chain.from_iterable(batches), *self._over, *self._again]
        self._over = []

    def left(self) -> int:
        """How many batches are still to come; only where the sampler has a length."""
        samples = len(self._again) + max(0, len(self._sampler) - self._read)
        return samples // self.size if self._drops else -(-samples // self.size)

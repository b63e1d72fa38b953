"""Rings that a model fills batch by batch (MoCo's queue of keys, a memory bank): found while another size is asked for.

Told by ``made_for`` of each forward of a root. A buffer of which each forward changes one run of exactly the batch's
length, going on where the last one ended, is a ring; most are written by slices, and fail where the batch does not
divide their length. It keeps one number for each place of a buffer, and no tensor of the script.
"""

from __future__ import annotations

from typing import Any


class Rings:
    """``found`` says by batch size how long the ring is that was seen, and what it is called."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.found: dict[int, tuple[int, str]] = {}
        self._seen: dict[tuple[int, str, int], tuple[int, Any, int | None]] = {}
        """By buffer and dimension: its version, its numbers, and where the run ended that was written last."""

    def begin(self) -> None:
        """Nothing is known of any buffer yet, or any more."""
        self._seen.clear()

    def called(self, module: Any, size: int) -> None:
        """A forward of ``module`` with batches of ``size`` is over."""
        for name, buffer in module.named_buffers():
            for dimension, length in enumerate(buffer.shape):
                if length > size and length % size == 0:
                    self._look((id(module), name, dimension), buffer, size)

    def _look(self, key: tuple[int, str, int], buffer: Any, size: int) -> None:
        before = self._seen.get(key)
        if before is not None and before[0] == buffer._version:
            return
        _, name, dimension = key
        numbers = self._numbers(buffer, dimension)
        ended = None
        if before is not None:
            began = run_of((before[1] != numbers).nonzero().flatten().tolist(), size, len(numbers))
            if began is not None:
                ended = (began + size) % len(numbers)
                if began == before[2]:
                    self.found[size] = len(numbers), name
        self._seen[key] = buffer._version, numbers, ended

    def _numbers(self, buffer: Any, dimension: int) -> Any:
        with self._torch.no_grad():
            others = [each for each in range(buffer.dim()) if each != dimension]
            return buffer.detach().sum(others) if others else buffer.detach().clone()


def run_of(places: list[int], size: int, length: int) -> int | None:
    """Where a run of ``size`` begins that ``places`` are, round the end of ``length`` too; None where they are none."""
    if len(places) != size:
        return None
    known = set(places)
    began = [place for place in places if (place - 1) % length not in known]
    return began[0] if len(began) == 1 else None


def unfit(found: tuple[int, str] | None, size: int) -> str | None:
    """Why batches of ``size`` cannot be had beside the ring that was found."""
    if found is None or found[0] % size == 0:
        return None
    return "the model fills a ring of %d (%s) batch by batch, and batches of %d do not divide it" % (*found, size)

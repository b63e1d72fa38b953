"""History into chart columns: the rings of the state, laid on a time axis of equal columns.

Called by the frame. Columns stand at whole multiples of their width, so that a chart scrolls and never shimmers;
a column in which nothing was measured is None and stays a gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.history.state import Entry, Point, Ring


@dataclass(frozen=True)
class Column:
    """Means over one column of the axis; None: nothing measured then. Units as in ``Point``."""

    model: float | None = None
    cpu: float | None = None
    samples_per_s: float | None = None
    gpu: float | None = None


EMPTY = Column()


@dataclass(frozen=True)
class Axis:
    """``count`` columns of ``column_s`` seconds, up to the last cell that was complete at ``end_s`` (since the epoch).

    A cell holds ``per_cell`` columns and begins at a whole multiple of them: a chart that moves by whole cells, and
    never draws half a one, repaints half as often, and full rows not at all.
    """

    end_s: float
    count: int
    column_s: float
    per_cell: int = 1

    @property
    def first(self) -> int:
        """Number of the leftmost column, counted from the epoch."""
        cell = math.floor(self.end_s / self.column_s) // self.per_cell
        return cell * self.per_cell - self.count

    def place(self, at_s: float) -> int:
        """The column of a moment, from 0; negative or ≥ ``count`` when it is outside, or no moment at all."""
        if not math.isfinite(at_s):
            return -1
        return math.floor(at_s / self.column_s) - self.first


def columns(rings: Sequence[Ring], axis: Axis) -> list[Column]:
    """The chart's columns, oldest first, each from the finest ring that reaches back to it."""
    found: list[list[Point]] = [[] for _ in range(axis.count)]
    reached = axis.count
    for ring in rings:
        reached = _lay(ring, axis, found, reached)
        if reached <= 0:
            break
    laid = [_mean(points) if points else EMPTY for points in found]
    return _closed(laid)


def _lay(ring: Ring, axis: Axis, found: list[list[Point]], reached: int) -> int:
    """Put the ring's points into the columns left of ``reached``; the leftmost column that it reaches."""
    left = reached
    for point in reversed(ring.points):
        # a wide point covers several columns, a narrow one a part of one
        start = axis.place(point.at_s)
        stop = start + max(1, round(ring.width_s / axis.column_s))
        if stop <= 0:
            return 0
        for at in range(max(0, start), min(stop, reached)):
            found[at].append(point)
        left = min(left, max(0, start))
    return left


def _mean(points: list[Point]) -> Column:
    if len(points) == 1:
        return Column(points[0].model, points[0].cpu, points[0].samples_per_s, points[0].gpu)
    return Column(
        _weighted([(point.model, point.weight) for point in points]),
        _weighted([(point.cpu, point.weight) for point in points]),
        _weighted([(point.samples_per_s, point.weight) for point in points]),
        _weighted([(point.gpu, point.weight) for point in points]),
    )


def _weighted(pairs: list[tuple[float | None, int]]) -> float | None:
    total = sum(weight for value, weight in pairs if value is not None)
    return sum(value * weight for value, weight in pairs if value is not None) / total if total else None


def _closed(laid: list[Column]) -> list[Column]:
    """A single hole between two measured columns is the sampler's jitter, not a gap: it takes its left neighbour."""
    for at in range(1, len(laid) - 1):
        if laid[at] is EMPTY and laid[at - 1] is not EMPTY and laid[at + 1] is not EMPTY:
            laid[at] = laid[at - 1]
    return laid


def landed(ledger: Sequence[Entry], axis: Axis) -> list[tuple[int, Entry]]:
    """Changes that came into force within the axis, with their column, oldest first.

    One that has just landed, in a cell that is not complete yet, already stands at the edge.
    """
    placed = ((axis.place(at_s), entry) for entry in ledger if (at_s := landed_at(entry)) is not None)
    return [(min(at, axis.count - 1), entry) for at, entry in placed if 0 <= at < axis.count + axis.per_cell]


def landed_at(entry: Entry) -> float | None:
    """When a change came into force, or was rolled back before it did; None: neither."""
    if entry.landed_s is not None:
        return entry.landed_s
    return entry.state_s if entry.state == "rolled_back" else None

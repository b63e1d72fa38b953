"""Looks that nobody has to have, kept to a small part of the time however often there is an occasion for one.

Held by whoever looks, which reads the clock itself. It must never stand before a look that a change depends on.
"""

from __future__ import annotations


class Sparing:
    """One kind of look: it takes one part in ``share`` of the time at most. Times in nanoseconds of one clock."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._free_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether there is time for a look that begins now; for the first one there always is."""
        return self._free_ns is None or now_ns >= self._free_ns

    def took(self, began_ns: int, ended_ns: int) -> None:
        """There was one; one more than were due is waited for longer."""
        self._free_ns = max(self._free_ns or ended_ns, ended_ns) + self._share * (ended_ns - began_ns)

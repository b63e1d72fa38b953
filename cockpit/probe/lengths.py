"""Who asks for the length of a loader, and whether anew in each epoch: what was made of it once keeps the old one.

Told by ``registry`` at each ``__iter__`` of the loader; asked by ``batching`` before smaller batches make the loader
longer. It knows lines of code by name alone.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 64
"""So many calls are looked at from one ``__iter__`` to the next: some loops ask at every step."""


class Lengths:
    """Of one loader's place. A round is what lies between two of its ``__iter__``; the first lies before them all."""

    def __init__(self) -> None:
        self._rounds: dict[str, tuple[int, int]] = {}

    def heard(self, askers: Iterable[str], turn: int) -> None:
        """``askers`` have asked in this round."""
        for by in askers:
            first, _ = self._rounds.get(by, (turn, turn))
            self._rounds[by] = (first, turn)

    def kept(self, turn: int) -> str | None:
        """Who has asked in one round alone, before round ``turn``: a table or a schedule may have been made of it."""
        return next((by for by, (first, last) in list(self._rounds.items()) if first == last < turn), None)

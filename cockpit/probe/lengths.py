"""Who asks for the length of a loader, and whether anew in each epoch: what was made of it once keeps the old one.

Told by ``registry`` at each ``__iter__`` of the loader; asked by ``batching`` before smaller batches make the loader
longer. It knows lines of code by name alone; ``tables`` reads them where somebody asks for such batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from .tables import taken_to_its_end

MOST = 64
"""So many calls are looked at from one ``__iter__`` to the next: some loops ask at every step."""

PAST = "%s made %s of len(loader) once: smaller batches make more steps, and line %d would take what lies past its end"


class Asker(NamedTuple):
    """``words``: ``train.py:31``, or an installed package, which has no ``file``."""

    words: str
    file: str | None = None
    line: int = 0

    @classmethod
    def of(cls, package: str | None, file: str, line: int) -> Asker:
        """``package`` is None for code that is installed nowhere."""
        return cls("%s:%d" % (os.path.basename(file), line), file, line) if package is None else cls(package)


class Lengths:
    """Of one loader's place. A round is what lies between two of its ``__iter__``; the first lies before them all."""

    def __init__(self) -> None:
        self._rounds: dict[Asker, tuple[int, int]] = {}

    def heard(self, askers: Iterable[Asker], turn: int) -> None:
        """``askers`` have asked in this round."""
        for by in askers:
            first, _ = self._rounds.get(by, (turn, turn))
            self._rounds[by] = (first, turn)

    def kept(self, turn: int) -> tuple[Asker, ...]:
        """Who has asked in one round alone, before round ``turn``: what was made of it then stays as long as it is."""
        return tuple(by for by, (first, last) in list(self._rounds.items()) if first == last < turn)


def run_past(askers: Iterable[Asker]) -> str | None:
    """What more steps would run past the end of, in words; None where that is not certain."""
    for by in askers:
        use = taken_to_its_end(by.file, by.line)
        if use is not None:
            return PAST % (by.words, *use)
    return None

"""How a person reads the training's output: from which line on, shifted how far, looking for what. Pure.

Held by the app as one frozen value and drawn by ``output``. Lines go by their number since the screen was opened, so
that a page stays where it is while new lines come and old ones are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SHIFT = 20
"""Columns that one press moves long lines."""


@dataclass(frozen=True)
class Reading:
    """``open``: the output has the whole screen. ``top``: number of the first line shown (None: follow the newest).
    ``pattern``: what is looked for (empty: nothing), ``hits``: numbers of the lines that hold it, ``hit``: the one
    that was jumped to."""

    open: bool = False
    top: int | None = None
    shift: int = 0
    pattern: str = ""
    hits: tuple[int, ...] = ()
    hit: int | None = None


AT_REST = Reading()


def scrolled(reading: Reading, by: int, first: int, count: int, height: int) -> Reading:
    """``by`` lines further down; at the end it follows again. ``height``: lines that are shown at a time."""
    last = first + max(0, count - height)
    top = (last if reading.top is None else max(first, reading.top)) + by
    return replace(reading, top=None if top >= last else max(first, top))


def followed(reading: Reading, first: int, count: int, height: int) -> Reading:
    """Following where it did not, and else standing still where it is."""
    if reading.top is not None:
        return replace(reading, top=None)
    return replace(reading, top=first + max(0, count - height))


def shifted(reading: Reading, by: int, longest: int) -> Reading:
    """Long lines moved left or right."""
    return replace(reading, shift=max(0, min(reading.shift + by * SHIFT, max(0, longest - SHIFT))))


def jumped(reading: Reading, by: int, first: int, count: int, height: int) -> Reading:
    """To the next line that holds the pattern (``by`` 1) or the one before (-1), round the end; it comes into sight."""
    hits = [at for at in reading.hits if at >= first]
    if not hits:
        return replace(reading, hit=None)
    if reading.hit is None:
        hit = hits[-1]  # the newest, since that is what is on the screen
    elif by > 0:
        hit = next((at for at in hits if at > reading.hit), hits[0])
    else:
        hit = next((at for at in reversed(hits) if at < reading.hit), hits[-1])
    top = first + max(0, count - height) if reading.top is None else reading.top
    if not top <= hit < top + height:
        top = max(first, min(hit - height // 2, first + max(0, count - height)))
    return replace(reading, hit=hit, top=top)


def holds(line: str, pattern: str) -> bool:
    """Whether the line holds the pattern; capitals count only where the pattern has some."""
    return pattern in (line.lower() if pattern == pattern.lower() else line)


def places(line: str, pattern: str) -> list[int]:
    """Where the line holds the pattern: each beginning, none inside another."""
    text = line.lower() if pattern == pattern.lower() else line
    found: list[int] = []
    at = text.find(pattern) if pattern else -1
    while at >= 0:
        found.append(at)
        at = text.find(pattern, at + len(pattern))
    return found


class Finder:
    """Keeps the numbers of the lines that hold a pattern, and looks at each line once."""

    def __init__(self) -> None:
        self._pattern, self._hits, self._done = "", list[int](), 0

    def hits(self, pattern: str, lines: Sequence[str], first: int, whole: int) -> tuple[int, ...]:
        """Numbers of ``lines`` (the first is number ``first``) that hold ``pattern``.

        The first ``whole`` of them will not change any more; one after them is looked at again next time.
        """
        if pattern != self._pattern:
            self._pattern, self._hits, self._done = pattern, [], first
        if not pattern:
            return ()
        start = max(self._done, first)
        self._hits = [at for at in self._hits if at >= first]
        self._hits += [at for at in range(start, first + whole) if holds(lines[at - first], pattern)]
        self._done = first + whole
        growing = range(first + whole, first + len(lines))
        return (*self._hits, *(at for at in growing if holds(lines[at - first], pattern)))

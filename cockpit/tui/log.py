"""The newest lines of the training's own output, read from its file a little at a time. Used by the app's tick.

The file may grow by megabytes a second, shrink, or be missing: at most a few kilobytes are ever read, and what they
hold is data, cleaned before it is drawn.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from .clean import clean

READ_BYTES = 16 * 1024
LONGEST = 60


class Tail:
    """``lines``: the newest, oldest first; empty where there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self._kept: deque[str] = deque(maxlen=LONGEST)

    @property
    def lines(self) -> tuple[str, ...]:
        """What is known, with the line that has not ended yet."""
        partial = clean(self._rest.decode("utf-8", "replace")) if self._rest.strip() else ""
        return (*self._kept, partial) if partial else tuple(self._kept)

    def read(self) -> None:
        """Look for news; at most READ_BYTES of them."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if size == self._at:
                    return
                if size < self._at:  # truncated by the training
                    self._rest = b""
                    self._at = 0
                skipped = size - self._at > READ_BYTES
                file.seek(max(self._at, size - READ_BYTES))
                data = (b"" if skipped else self._rest) + file.read(READ_BYTES)
        except OSError:
            return
        self._at = size
        *whole, self._rest = data.split(b"\n")
        self._rest = self._rest[-READ_BYTES:]
        if skipped and len(whole) > 1:
            whole = whole[1:]  # its beginning was not read
        self._kept.extend(text for line in whole[-LONGEST:] if (text := clean(line.decode("utf-8", "replace"))).strip())

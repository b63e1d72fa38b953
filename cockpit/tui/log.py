"""The newest lines of the training's own output, read from its file a little at a time. Used by the app's tick.

The file may grow by megabytes a second, shrink, or be missing: at most some kilobytes are ever read at a time, a
bounded number of lines is kept, and what they hold is data, cleaned before it is drawn.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from .clean import clean

FIRST_BYTES = 128 * 1024
"""Read when the screen opens: enough to look back in."""
READ_BYTES = 32 * 1024
"""Read at a time from then on."""
LONGEST = 2000


class Tail:
    """``lines``: the newest, oldest first; empty where there is no file. ``first``: the number of the oldest of them.

    ``older``: whether the file holds some that are not kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self._kept: deque[str] = deque(maxlen=LONGEST)
        self._lines: tuple[str, ...] | None = None
        self._opened = False
        self._gap, self._skipped = "", 0
        self.first = 0
        self.older = False

    @property
    def lines(self) -> tuple[str, ...]:
        """What is known, with the line that has not ended yet."""
        if self._lines is None:
            partial = clean(self._rest.decode("utf-8", "replace")) if self._rest.strip() else ""
            self._lines = (*self._kept, partial) if partial else tuple(self._kept)
        return self._lines

    @property
    def whole(self) -> int:
        """How many of ``lines`` have ended: the one after them may still grow."""
        return len(self._kept)

    def read(self) -> None:
        """Look for news; at most READ_BYTES of them."""
        most = READ_BYTES if self._opened else FIRST_BYTES
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if size == self._at:
                    return
                if size < self._at:  # truncated by the training
                    self._rest = b""
                    self._at = 0
                skipped = size - self._at - most
                file.seek(max(self._at, size - most))
                data = (b"" if skipped > 0 else self._rest) + file.read(most)
        except OSError:
            return
        self._at, self._lines = size, None
        *whole, self._rest = data.split(b"\n")
        self._rest = self._rest[-READ_BYTES:]
        if skipped > 0:
            self.older = True
            whole = whole[1:] if len(whole) > 1 else whole  # its beginning was not read
            if self._opened:
                self._skip(skipped)
        self._opened = True
        self._keep([text for line in whole if (text := clean(line.decode("utf-8", "replace"))).strip()])

    def _skip(self, count: int) -> None:
        """Say how much is left out here; several gaps with nothing between them are one."""
        if self._kept and self._kept[-1] == self._gap:
            self._kept.pop()
            count += self._skipped
        self._skipped = count
        self._gap = f"... {count / 1e6:.1f} MB came too fast to be shown here: cockpit logs has them"
        self._keep([self._gap])

    def _keep(self, found: list[str]) -> None:
        forgotten = max(0, len(self._kept) + len(found) - LONGEST)
        self.first, self.older = self.first + forgotten, self.older or forgotten > 0
        self._kept.extend(found)

"""The terminal that stands in for the user's own as the training's input: it has a size, and nobody types on it.

Used by the keeper, so standard library alone. Reading from it is at its end at once, as from the null device, and so
is whatever a program asks after changing its modes (a prompt with keys of its own): no question may stop a training
unseen. It is nobody's controlling terminal: when it goes, with the keeper, nobody gets a signal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

END = b"\x04"


class Blank:
    """``path`` is what the training opens, for reading alone. Raises OSError, termios.error where there is none."""

    def __init__(self, rows: int, columns: int) -> None:
        self._ours, self._theirs = os.openpty()  # opened such that it does not become a controlling terminal
        modes = termios.tcgetattr(self._theirs)
        modes[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0  # a read that finds nothing is at the end
        termios.tcsetattr(self._theirs, termios.TCSANOW, modes)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.set_blocking(self._ours, False)
        self.path = os.ttyname(self._theirs)
        os.close(os.open(self.path, os.O_RDONLY | os.O_NOCTTY))

    def answer(self) -> bool:
        """Whoever has set modes in which a read would wait is told that there is no more; whether to look again."""
        try:
            modes = termios.tcgetattr(self._theirs)
            end = _end_in(modes)
            if end and not struct.unpack("i", fcntl.ioctl(self._theirs, termios.FIONREAD, b"\0" * 4))[0]:
                self._say(end)
        except (OSError, termios.error):
            return False
        return True

    def _say(self, end: bytes) -> None:
        """One at a time: the last has been read. What was echoed is thrown away."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._ours, 65536)
        with contextlib.suppress(BlockingIOError):
            os.write(self._ours, end)


def blank_terminal(rows: int, columns: int) -> Blank | None:
    """One, or None where the system has none to give."""
    try:
        return Blank(rows, columns)
    except (OSError, termios.error):
        return None


def _end_in(modes: list[Any]) -> bytes:
    """What means the end under these modes; nothing where a read does not wait anyway."""
    if modes[3] & termios.ICANON:
        return bytes(modes[6][termios.VEOF])
    return END if modes[6][termios.VMIN] not in (0, b"\0") else b""

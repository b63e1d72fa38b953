"""The terminal that stands in for the user's own as the training's input: it has a size, and nobody types on it.

Used by the keeper, so standard library alone. Reading from it is at its end at once, as from the null device, and so
is, after a while in which the training does nothing, whatever a program asks after changing its modes (a prompt with
keys of its own): no question may stop a training unseen. Who trains and looks now and then for a key ("q stops") has
changed them as well, and must never see one. It is nobody's controlling terminal: when it goes, with the keeper,
nobody gets a signal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

END = b"\x04"
PATIENCE_S = 30.0
"""So long nothing of the run may have done anything: a question waits for ever, a training for less."""
IDLE_SHARE = 0.01
"""Of one core: launchers and our own part look around even then."""


class Blank:
    """``path`` is what the training opens, for reading alone. Raises OSError, termios.error where there is none."""

    def __init__(self, rows: int, columns: int, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._still: tuple[float, float] | None = None
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
        with contextlib.suppress(BlockingIOError):  # what somebody wrote to it, or was echoed, must not fill it up
            while os.read(self._ours, 65536):
                pass
        try:
            modes = termios.tcgetattr(self._theirs)
            end = _end_in(modes)
            if not end:
                self._still = None
            elif self._nobody_works() and not select.select([self._theirs], [], [], 0)[0]:
                self._say(end)  # one at a time: the last has been read
        except (OSError, termios.error):
            return False
        return True

    def _nobody_works(self) -> bool:
        """Whether the run has been idle for as long as patience lasts, since the modes are what they are."""
        now_s, used_s = time.monotonic(), main_threads_s(os.getsid(0))
        if self._still is None or used_s - self._still[1] > IDLE_SHARE * self._patience_s:
            self._still = now_s, used_s
        return now_s - self._still[0] >= self._patience_s

    def _say(self, end: bytes) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._ours, end)


def blank_terminal(rows: int, columns: int, patience_s: float = PATIENCE_S) -> Blank | None:
    """One, or None where the system has none to give."""
    try:
        return Blank(rows, columns, patience_s)
    except (OSError, termios.error):
        return None


def main_threads_s(session: int) -> float:
    """CPU seconds of the main threads of a session: who asks waits in its main thread, whatever others do beside it."""
    ticks = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/task/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _end_in(modes: list[Any]) -> bytes:
    """What means the end under these modes; nothing where a read does not wait anyway."""
    if modes[3] & termios.ICANON:
        return bytes(modes[6][termios.VEOF])
    return END if modes[6][termios.VMIN] not in (0, b"\0") else b""

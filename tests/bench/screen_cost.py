"""CPU and bytes of the screen at 2 Hz with a scripted run behind it, in a pty of a given size. Printed, never gating.

``PYTHONPATH=.:tests python -m bench.screen_cost [WxH …]``; the test of the same name calls ``cost``.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLOCK_HZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """``cpu_pct`` of one core, ``kb_s`` to the terminal, ``first_s`` until the first picture's last row."""

    size: tuple[int, int]
    cpu_pct: float
    kb_s: float
    first_s: float
    key_ms: float


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_HZ


def cost(size: tuple[int, int], for_s: float = 20.0, command: list[str] | None = None) -> Cost:
    """Run the screen (by default the scripted one) in a pty for a while and see what it takes."""
    argv = command or [sys.executable, "-m", "tui.play"]
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": f"{ROOT}:{ROOT}/tests",
        }
        for name in ("NO_COLOR", "SSH_CONNECTION", "SSH_TTY"):
            os.environ.pop(name, None)
        os.execvp(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    try:
        first_s = _until(terminal, b"leave", began, 15.0) - began
        _read(terminal, 3.0)
        cpu, at = cpu_s(pid), time.perf_counter()
        got = _read(terminal, for_s)
        spent, took = cpu_s(pid) - cpu, time.perf_counter() - at
        keys = []
        for key in (b"j", b"k") * 5:
            _read(terminal, 0.23)
            pressed = time.perf_counter()
            os.write(terminal, key)
            keys.append(_until(terminal, b"\xe2\x96\xb8", pressed, 2.0) - pressed)
        return Cost(size, 100.0 * spent / took, got / took / 1000.0, first_s, 1000.0 * sorted(keys)[len(keys) // 2])
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def _until(terminal: int, words: bytes, now: float, at_most_s: float) -> float:
    seen, end = b"", now + at_most_s
    while time.perf_counter() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            seen += os.read(terminal, 1 << 16)
            if words in seen:
                return time.perf_counter()
    raise TimeoutError(f"{words!r} never came; last: {seen[-300:]!r}")


def _read(terminal: int, for_s: float) -> int:
    got, end = 0, time.perf_counter() + for_s
    while (left := end - time.perf_counter()) > 0:
        if select.select([terminal], [], [], left)[0]:
            got += len(os.read(terminal, 1 << 16))
    return got


def main() -> None:
    """Print a line a size."""
    sizes = [tuple(int(side) for side in word.split("x")) for word in sys.argv[1:] if "x" in word] or [(80, 24)]
    for width, height in sizes:
        found = cost((width, height))
        print(f"{width}x{height}: {found.cpu_pct:.2f} % of a core, {found.kb_s:.1f} kB/s, first picture "
              f"{found.first_s:.2f} s, key to paint {found.key_ms:.0f} ms; load {os.getloadavg()[0]:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()

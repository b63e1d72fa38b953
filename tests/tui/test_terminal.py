"""The screen on a real pseudo-terminal: restored on every exit that can be caught, honest about colours, never
spinning on a terminal that is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cockpit.model.errors import CockpitError, UsageError
from cockpit.tui.app import run_screen
from cockpit.tui.terminal import Terminal, terminal_of, why_not

ROOT = Path(__file__).resolve().parents[2]
LEFT_ALTERNATE, SHOW_CURSOR = b"\x1b[?1049l", b"\x1b[?25h"


class Pane:
    """A screen with a scripted run in a pty; ``seen`` is every byte it wrote."""

    def __init__(self, env: Mapping[str, str], size: tuple[int, int] = (80, 24)) -> None:
        self.seen = b""
        base = {
            name: value
            for name, value in os.environ.items()
            if name not in ("NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE", "LANG", "STY", "TERM")
        }
        where = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        environ = {**base, **where, **env}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(sys.executable, [sys.executable, "-m", "tui.play", "20"], environ)
        self.resize(*size)
        self.before = termios.tcgetattr(self.terminal)
        self.status: int | None = None

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self, for_s: float) -> None:
        end = time.monotonic() + for_s
        while (left := end - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                try:
                    self.seen += os.read(self.terminal, 1 << 16)
                except OSError:
                    return

    def until(self, words: bytes, at_most_s: float = 20.0) -> None:
        end = time.monotonic() + at_most_s
        while words not in self.seen and time.monotonic() < end:
            self.read(0.1)
        assert words in self.seen, f"{words!r} never came: {self.seen[-400:]!r}"

    def ended(self, at_most_s: float = 15.0) -> int:
        """Its exit status as the shell would see it."""
        end = time.monotonic() + at_most_s
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read(0.1)
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
        raise AssertionError("the screen did not end")

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):  # the test may have hung it up
            os.close(self.terminal)


@pytest.fixture
def pane() -> Iterator[Pane]:
    found = Pane({})
    yield found
    found.close()


def is_restored(pane: Pane) -> None:
    tail = pane.seen[pane.seen.rfind(b"leave") :]
    assert LEFT_ALTERNATE in tail and SHOW_CURSOR in tail, tail[-200:]
    assert b"\x1b[?2004l" in tail and b"\x1b[<u" in tail
    assert termios.tcgetattr(pane.terminal) == pane.before, "echo and line mode are back"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_usable_terminal(pane: Pane, number: signal.Signals) -> None:
    pane.until(b"leave")
    os.kill(pane.pid, number)
    assert pane.ended() == 0
    is_restored(pane)


def test_a_signal_ends_it_even_while_the_terminal_takes_nothing(pane: Pane) -> None:
    pane.until(b"leave")
    for at in range(120):  # each size is a whole picture, and nobody reads them
        pane.resize(200 + at % 2, 60)
        time.sleep(0.03)
    os.kill(pane.pid, signal.SIGTERM)
    end = time.monotonic() + 15.0
    while time.monotonic() < end and pane.status is None:
        time.sleep(0.05)
        pid, status = os.waitpid(pane.pid, os.WNOHANG)
        pane.status = os.waitstatus_to_exitcode(status) if pid else None
    assert pane.status in (0, 143), "it hangs with its terminal"
    assert termios.tcgetattr(pane.terminal) == pane.before


def test_q_d_leaves_a_usable_terminal(pane: Pane) -> None:
    pane.until(b"leave")
    os.write(pane.terminal, b"q")
    pane.until(b"detach")
    os.write(pane.terminal, b"d")
    assert pane.ended() == 0
    is_restored(pane)


def test_an_error_in_the_screen_leaves_a_usable_terminal() -> None:
    pane = Pane({"COCKPIT_TEST_TICK": "break"})
    try:
        pane.until(b"broken on purpose")
        assert pane.ended() == 1
        assert LEFT_ALTERNATE in pane.seen
        assert termios.tcgetattr(pane.terminal) == pane.before
    finally:
        pane.close()


def test_a_terminal_that_is_gone_ends_the_screen_and_burns_nothing() -> None:
    pane = Pane({"COCKPIT_TEST_TICK": "ignore hang-ups"})
    try:
        pane.until(b"leave")
        os.close(pane.terminal)
        began = time.monotonic()
        while time.monotonic() - began < 20.0:
            pid, _ = os.waitpid(pane.pid, os.WNOHANG)
            if pid:
                pane.status = 0
                break
            time.sleep(0.05)
        assert pane.status is not None, "a screen without a terminal must end by itself, SIGHUP or not"
    finally:
        pane.close()


COLOURS = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


@pytest.mark.parametrize(
    ("env", "codes"),
    [
        ({"NO_COLOR": "1"}, rb"\x1b\[[0-9;]*(?:[34][0-8])[0-9;]*m"),
        ({"TERM": "xterm-16color"}, rb"[34]8;[25];"),
        ({"TERM": "xterm-256color"}, rb"[34]8;2;"),
        ({"TERM": "screen.xterm-256color", "STY": "1.pts", "COLORTERM": "truecolor"}, rb"[34]8;2;"),
    ],
)
def test_no_colour_code_that_the_terminal_does_not_know(env: dict[str, str], codes: bytes) -> None:
    pane = Pane(env)
    try:
        pane.until(b"leave")
        pane.read(1.2)
        for key in (b"?", b"\x1b", b"q"):  # boxes are drawn by other code than the picture
            os.write(pane.terminal, key)
            pane.read(0.4)
        found = re.findall(codes, pane.seen)
        assert not found, found[:5]
    finally:
        pane.close()


@pytest.mark.parametrize(
    "env", [{"TERM": "linux"}, {"LANG": "C"}, pytest.param({"LC_ALL": "POSIX"}, marks=pytest.mark.long)]
)
def test_plain_characters_where_others_cannot_be_shown(env: dict[str, str]) -> None:
    pane = Pane(env)
    try:
        pane.until(b"leave")
        pane.read(1.2)
        os.write(pane.terminal, b"?")
        pane.read(0.6)
        assert pane.seen.isascii(), [bytes([byte]) for byte in pane.seen if byte > 127][:10]
    finally:
        pane.close()


def test_resizing_live_down_to_one_cell(pane: Pane) -> None:
    pane.until(b"leave")
    for size in ((1, 1), (40, 10), (200, 60), (60, 16), (80, 24)):
        pane.resize(*size)
        pane.read(0.3)
    pane.seen = b""
    os.write(pane.terminal, b"j")
    pane.until(b"\xe2\x96\xb8")


def test_ctrl_z_gives_the_shell_back_and_fg_returns(pane: Pane) -> None:
    pane.until(b"leave")
    os.write(pane.terminal, b"\x1a")
    for _ in range(100):
        pane.read(0.1)
        if Path(f"/proc/{pane.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            break
    else:
        raise AssertionError("it was never suspended")
    pane.until(LEFT_ALTERNATE)  # written before it stopped, and perhaps not read yet
    assert termios.tcgetattr(pane.terminal) == pane.before
    pane.seen = b""
    os.kill(pane.pid, signal.SIGCONT)
    pane.until(b"leave")


def test_without_a_terminal_it_refuses_in_one_sentence(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from cockpit.tui.app import run_screen\n"
        "from cockpit.model.errors import CockpitError\n"
        "try: run_screen(Path('x'), Path('y'))\n"
        "except CockpitError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.count("\n") == 1 and "stdin" in done.stdout and "--headless" in done.stdout
    assert why_not(True, False, "xterm") == (
        "the screen is drawn on stderr, and stderr is not a terminal: use --headless"
    )
    assert "dumb" in str(why_not(True, True, "dumb")) and why_not(True, True, "xterm") is None
    with pytest.raises(CockpitError):
        run_screen(tmp_path / "x", tmp_path)


def test_what_a_terminal_can_show_is_read_from_its_environment() -> None:
    assert terminal_of({"TERM": "xterm"}, "utf-8") == Terminal("braille", False, None)
    assert terminal_of({"TERM": "xterm", "LANG": "de_DE.UTF-8", "NO_COLOR": "1"}, "utf-8").mono
    assert not terminal_of({"TERM": "xterm", "NO_COLOR": ""}, "utf-8").mono, "an empty NO_COLOR is none"
    assert terminal_of({"TERM": "xterm", "LANG": "de_DE.ISO-8859-1"}, "utf-8").glyphs == "ascii"
    assert terminal_of({"TERM": "xterm", "LC_ALL": "C.utf8", "LANG": "C"}, "utf-8").glyphs == "braille"
    assert terminal_of({"TERM": "xterm"}, "latin-1").glyphs == "ascii"
    assert terminal_of({"TERM": "linux"}, "utf-8").glyphs == "ascii"
    assert terminal_of({"TERM": "linux"}, "utf-8", "block").glyphs == "block"
    assert terminal_of({"TERM": "screen", "STY": "1", "COLORTERM": "truecolor"}, "utf-8").color_system == "256"
    with pytest.raises(UsageError, match="--glyphs emoji: it takes braille, block, ascii"):
        terminal_of({}, "utf-8", "emoji")

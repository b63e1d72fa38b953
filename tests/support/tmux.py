"""A real terminal of a given size, driven with keys and read back as text: tmux on a server of its own.

Used by the end-to-end tests of the screen. Where tmux is missing it is installed (the README's test command must
do alone on a new machine), or the test fails with what to do; nothing here is ever skipped.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def need_tmux() -> None:
    """tmux is there, is installed from Debian's packages where that is possible, or the test fails saying so."""
    if shutil.which("tmux"):
        return
    become = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if shutil.which("apt-get") and (not become or shutil.which("sudo")):
        quiet = {"capture_output": True, "timeout": 600, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run([*become, "apt-get", "update", "-q"], check=False, **quiet)
        subprocess.run([*become, "apt-get", "install", "-yq", "--no-install-recommends", "tmux"], check=False, **quiet)
    assert shutil.which("tmux"), "these tests need tmux, and it could not be installed: apt-get install tmux"


class Terminal:
    """One tmux session with one pane. ``close`` ends the server and everything that still runs in it."""

    def __init__(
        self, folder: Path, command: Sequence[str], env: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        need_tmux()
        folder.mkdir(parents=True, exist_ok=True)
        # a socket's path may have 107 bytes, and test folders are deep
        self._short = Path(tempfile.mkdtemp(prefix="cockpit-tmux-", dir="/tmp"))
        self._socket = self._short / "socket"
        self._ended = folder / "status"
        settings = [f"{name}={value}" for name, value in env.items() if name != "TERM"]
        program = "env -i TERM=$TERM " + shlex.join([*settings, *command])
        # the status is kept in a file; cat keeps the terminal alive, so that what it was left in can be seen
        line = f"{program}; echo $? > {shlex.quote(str(self._ended))}; exec cat"
        config = folder / "tmux.conf"
        config.write_text(
            "set -g default-terminal tmux-256color\nset -g history-limit 5000\n"
            "set -s escape-time 0\nset -g status off\n"
        )
        self._tmux("-f", str(config), "new-session", "-d", "-s", "it", "-x", str(columns), "-y", str(rows), line)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            capture_output=True,
            text=True,
            timeout=30,
            errors="replace",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def keys(self, *names: str) -> None:
        """Press keys, by tmux's names (``Right``, ``a``, ``C-c``)."""
        self._tmux("send-keys", "-t", "it", *names)

    def screen(self) -> str:
        """What stands on the screen now."""
        return self._tmux("capture-pane", "-p", "-t", "it")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-t", "it", "-x", str(columns), "-y", str(rows))

    def flags(self) -> dict[str, str]:
        """What the program has left the terminal in."""
        names = ("alternate_on", "cursor_flag", "mouse_any_flag", "pane_dead")
        values = self._tmux("display-message", "-p", "-t", "it", " ".join("#{%s}" % name for name in names)).split()
        return dict(zip(names, values, strict=True))

    def pid(self) -> int:
        """The pane's first process (a shell; its child is the program)."""
        return int(self._tmux("display-message", "-p", "-t", "it", "#{pane_pid}"))

    def wait_for(self, check: str | Callable[[str], object], timeout_s: float = 60) -> str:
        """The screen once it holds ``check`` (a text, or a function that finds it true); fails with the last screen."""
        found = check if callable(check) else lambda screen: check in screen
        end, screen = time.monotonic() + timeout_s, ""
        while time.monotonic() < end:
            screen = self.screen()
            if found(screen):
                return screen
            time.sleep(0.1)
        raise AssertionError(f"waited {timeout_s} s in vain for {check!r}; the screen:\n{screen}")

    def status(self, timeout_s: float = 30) -> int:
        """The exit status of the program, once it has ended."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self._ended.exists() and (text := self._ended.read_text().strip()):
                return int(text)
            time.sleep(0.1)
        raise AssertionError(f"the program goes on after {timeout_s} s; the screen:\n{self.screen()}")

    def close(self) -> None:
        """End this server; other servers of the machine are not touched."""
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, timeout=30)
        shutil.rmtree(self._short, ignore_errors=True)

"""A stand-in for the engine: listens on a unix socket, keeps what the probe says, sends asks. And how to run a
training under the probe, as ``cockpit run`` would, without any of the engine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INJECT = ROOT / "cockpit" / "probe" / "inject"


class FakeEngine:
    """Listens at ``path``; ``messages`` is everything heard, oldest first, from every connection."""

    def __init__(self, path: Path, reads: bool = True) -> None:
        self.path = path
        self.messages: list[dict] = []
        self._reads = reads
        self._arrived = threading.Condition()
        self._peers: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            if self._reads:
                threading.Thread(target=self._read, args=(peer,), daemon=True).start()

    def _read(self, peer: socket.socket) -> None:
        rest = b""
        while True:
            try:
                data = peer.recv(65536)
            except OSError:
                return
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            with self._arrived:
                self.messages.extend(json.loads(line) for line in lines)
                self._arrived.notify_all()

    def of(self, kind: str, **fields: object) -> list[dict]:
        with self._arrived:
            return [m for m in self.messages if m["m"] == kind and all(m.get(k) == v for k, v in fields.items())]

    def wait(self, kind: str, timeout_s: float = 60, **fields: object) -> dict:
        """The first message of that kind with those fields; fails after ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while True:
            found = self.of(kind, **fields)
            if found:
                return found[0]
            with self._arrived:
                if not self._arrived.wait(max(0.0, end - time.monotonic())):
                    raise AssertionError(f"no {kind} {fields} among {self.messages[-20:]}")

    def send(self, **message: object) -> None:
        self._peers[-1].sendall(json.dumps(message).encode() + b"\n")

    def ask(self, name: str, now: bool = False, loader: str | None = None, **knobs: object) -> None:
        self.send(m="ask", id=name, knobs=knobs, now=now, loader=loader)

    def close(self) -> None:
        """As if the engine had died: the listener and every connection vanish."""
        self._listener.close()
        self.path.unlink(missing_ok=True)
        for peer in self._peers:
            peer.close()
        self._peers.clear()


def probe_env(folder: Path, start: dict | None = None, **extra: str) -> dict[str, str]:
    """The environment of a run whose data folder is ``folder`` (the engine's socket is ``folder/s``)."""
    folder.mkdir(parents=True, exist_ok=True)
    if start is not None:
        (folder / "start.json").write_text(json.dumps({"schema": 1, "run": "t", **start}))
    env = {k: v for k, v in os.environ.items() if not k.startswith("COCKPIT")}
    return {
        **env, "PYTHONPATH": str(INJECT), "COCKPIT_RUN": str(folder), "COCKPIT_SOCKET": str(folder / "s"),
        "COCKPIT_PACKAGE": str(ROOT / "cockpit"), "OMP_NUM_THREADS": "1", **extra,
    }  # fmt: skip


def bare_env(**extra: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COCKPIT", "PYTHONPATH"))}
    return {**env, "OMP_NUM_THREADS": "1", **extra}


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def launch(path: Path, env: dict[str, str], *args: str, python: tuple[str, ...] = ()) -> subprocess.Popen:
    """The script as its own process, its output kept apart."""
    return subprocess.Popen(
        [sys.executable, *python, str(path), *args], env=env, cwd=path.parent, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen, timeout_s: float = 120) -> tuple[str, str]:
    """(stdout, stderr) of a process that must end by itself."""
    try:
        return process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end in {timeout_s} s\n{out}\n{err}") from None

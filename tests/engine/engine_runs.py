"""What the engine's tests use to talk to real runs: a plain client, a run under test, commands for trainings."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

from support.waiting import wait_for

from cockpit.engine import launch, processes
from cockpit.engine.rundir import RunDir
from cockpit.history.journal import read_state
from cockpit.history.state import State

REPO = launch.PACKAGE.parent


class Client:
    """A plain client of the wire, with its own parsing, so that the tests do not trust ours."""

    def __init__(self, run: RunDir) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(30.0)
        self.socket.connect(str(run.socket))
        self.file = self.socket.makefile("rb")

    def say(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        line = self.file.readline()
        assert line, "the engine hung up"
        return json.loads(line)

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        self.say(m="do", n=7, verb=verb, args=args)
        answer = self.hear()
        assert answer["m"] == "done" and answer["n"] == 7
        return answer

    def engine(self) -> int:
        """The pid at the other end."""
        found = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", found)[0])

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class Started:
    """A run under test."""

    def __init__(self, run: RunDir) -> None:
        self.run = run

    def client(self) -> Client:
        return Client(self.run)

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        client = self.client()
        try:
            return client.ask(verb, **args)
        finally:
            client.close()

    def status(self) -> dict[str, Any]:
        answer = self.ask("status")
        assert answer["ok"], answer
        return answer["result"]

    def engine(self) -> int:
        client = self.client()
        try:
            return client.engine()
        finally:
            client.close()

    def kill_engine(self, number: signal.Signals = signal.SIGKILL) -> int:
        pid = self.engine()
        os.kill(pid, number)
        wait_for(lambda: not processes.is_alive(pid, None), "the engine is gone")
        return pid

    def training(self) -> int:
        pids = processes.read_pids(self.run)
        assert pids is not None
        return pids.training

    def ended(self, seconds: float = 60.0) -> State:
        """The state that the journal tells once it knows the end."""

        def look() -> State | None:
            state = read_state(self.run.data)
            return state if state is not None and state.phase in ("ended", "lost") else None

        return wait_for(look, "the run has ended", seconds)

    def until(self, what: str, check: Callable[[dict[str, Any]], Any], seconds: float = 30.0) -> Any:
        """The first true value of ``check`` on the status."""
        return wait_for(lambda: check(self.status()), what, seconds)


def scripted(*options: object) -> list[str]:
    """The command of a scripted training."""
    return [sys.executable, "-m", "cockpit.engine.scripted", *(str(option) for option in options)]


def python(source: str) -> list[str]:
    """A training in a few lines."""
    return [sys.executable, "-c", source]

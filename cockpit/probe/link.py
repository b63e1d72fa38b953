"""The probe's end of the socket: connects again for ever, never waits, drops and counts what does not fit.

Owned by one thread at a time: the probe's own once that runs, before and after it the training's (at ``__iter__``,
at exit). A full or dead socket costs one failed system call; it must never block and never raise.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Any, Callable

from ..wire.framing import Lines, pack

RETRY_NS = 1_000_000_000
QUEUED = 512
_READ = 65536


class Link:
    """One connection. ``greeting`` gives the messages that begin each (re)connection."""

    def __init__(self, path: str, clock: Callable[[], int], greeting: Callable[[], list[dict[str, Any]]]) -> None:
        self._path = path
        self._clock = clock
        self._greeting = greeting
        self._socket: socket.socket | None = None
        self._identity: os.stat_result | None = None
        self._next_try_ns = 0
        self._queue: deque[dict[str, Any]] = deque()
        self._out = b""
        self._lines = Lines()
        self.dropped = 0

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def say(self, message: dict[str, Any]) -> None:
        """Queue a message; beyond ``QUEUED`` the oldest tick goes first, and is counted."""
        if len(self._queue) >= QUEUED:
            self._shed()
        self._queue.append(message)

    def _shed(self) -> None:
        self.dropped += 1
        for kind in ("tick", "loaders"):
            for index, message in enumerate(self._queue):
                if message["m"] == kind:
                    del self._queue[index]
                    return
        self._queue.popleft()

    def pump(self) -> list[dict[str, Any]]:
        """Connect if it is time to, send what goes without waiting, return what has arrived."""
        try:
            self._check_it_is_ours()
            if self._socket is None and not self._connect():
                return []
            self._send()
            return self._receive()
        except OSError:
            self.close()
            return []

    def _connect(self) -> bool:
        now = self._clock()
        if now < self._next_try_ns:
            return False
        self._next_try_ns = now + RETRY_NS
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fresh.setblocking(False)
        try:
            fresh.connect(self._path)
        except OSError:
            fresh.close()
            return False
        self._socket, self._out, self._lines = fresh, b"", Lines()
        self._identity = os.fstat(fresh.fileno())
        for message in reversed(self._greeting()):
            self._queue.appendleft(message)
        return True

    def _check_it_is_ours(self) -> None:
        """A script may close every descriptor it does not know; the number may be its own file by now."""
        if self._socket is None or self._identity is None:
            return
        try:
            now = os.fstat(self._socket.fileno())
            ours = (now.st_dev, now.st_ino) == (self._identity.st_dev, self._identity.st_ino)
        except OSError:
            ours = False
        if not ours:
            self._socket.detach()
            self._socket, self._out = None, b""

    def _send(self) -> None:
        assert self._socket is not None
        while self._out or self._queue or self.dropped:
            if not self._out:
                if self.dropped and len(self._queue) < QUEUED // 2:
                    self._out, self.dropped = pack({"m": "dropped", "count": self.dropped}), 0
                elif self._queue:
                    self._out = pack(self._queue.popleft())
                else:
                    return
            try:
                sent = self._socket.send(self._out, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            self._out = self._out[sent:]

    def _receive(self) -> list[dict[str, Any]]:
        assert self._socket is not None
        found: list[dict[str, Any]] = []
        while True:
            try:
                data = self._socket.recv(_READ)
            except (BlockingIOError, InterruptedError):
                return found
            if not data:
                self.close()
                return found
            found.extend(self._lines.feed(data))

    def close(self) -> None:
        """Let go of the socket; half a line that went out is lost, whole messages in the queue are kept."""
        self._check_it_is_ours()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._out = b""

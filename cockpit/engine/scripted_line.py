"""The scripted training's end of the socket: made again whenever it is lost. Used by ``scripted`` alone."""

from __future__ import annotations

import socket
from typing import Any

from cockpit.wire.framing import Lines, pack


class Line:
    """The connection to the engine, made again whenever it is lost. Nothing is measured while it is away."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._lines = Lines()
        self.is_new = False

    def take(self) -> list[dict[str, Any]]:
        """Messages that have arrived; connects first where needed."""
        if self._socket is None and not self._connect():
            return []
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._socket.close()
            self._socket = None
        return self._lines.feed(data)

    def say(self, message: dict[str, Any]) -> None:
        """One message, lost where nobody listens."""
        if self._socket is not None:
            try:
                self._socket.sendall(pack(message))
            except OSError:
                self._socket.close()
                self._socket = None

    def _connect(self) -> bool:
        if self._path is None:
            return False
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            found.connect(self._path)
        except OSError:
            found.close()
            return False
        found.setblocking(False)
        self._socket, self._lines, self.is_new = found, Lines(), True
        return True

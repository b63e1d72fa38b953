"""The engine's unix socket: probes and clients come in here, each told by its first message.

A client never blocks the engine nor another client: what it does not read is given up, and once it reads again it gets
a fresh snapshot. A socket file that vanished (a cleaned /tmp) is bound again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from cockpit.model.errors import CockpitError
from cockpit.wire.codec import event_to_plain, to_plain
from cockpit.wire.framing import Lines, pack

from .record import Record
from .rundir import RunDir, safe_sockets

UNREAD_AT_MOST = 512 * 1024
"""Bytes waiting for a client before it counts as slow."""

MESSAGES_A_TURN = 50

Message = dict[str, Any]


@dataclass(frozen=True)
class Handlers:
    """What the server calls: a probe has spoken, a probe's connection has closed, a client asks for a verb.

    The number names the connection; ``do`` answers or raises a CockpitError.
    """

    heard: Callable[[int, Callable[[Message], None], Message], None]
    hung_up: Callable[[int], None]
    do: Callable[[str, Message], Message]


class Connection(asyncio.Protocol):
    """One peer. ``watches``: wants every event. ``behind``: has not read, so it misses events for now."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lines = Lines()
        self._closed = False
        self._heard: deque[Message] = deque()
        self._transport: asyncio.Transport | None = None
        self.is_probe = False
        self.watches = False
        self.behind = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_AT_MOST)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, in whatever way."""
        self._server.connections.discard(self)
        self._closed = True
        if self.is_probe:
            # its last words count; what a client still wanted does not
            while self._heard:
                self._take(self._heard.popleft())
            self._server.handlers.hung_up(id(self))

    def data_received(self, data: bytes) -> None:
        """Bytes in any pieces."""
        idle = not self._heard
        self._heard.extend(self._lines.feed(data))
        if idle:
            self._work()

    def _work(self) -> None:
        """A few messages, then everybody else's turn: one peer's pile of questions must not hold up the others."""
        for _ in range(MESSAGES_A_TURN):
            if not self._heard or self._closed or (self.behind and not self.is_probe):
                return
            self._take(self._heard.popleft())
        if self._heard:
            asyncio.get_running_loop().call_soon(self._work)

    def pause_writing(self) -> None:
        """The peer does not read: stop sending events, and stop taking its questions."""
        self.behind = True
        if self._transport is not None and not self.is_probe:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again: what it missed comes as one snapshot."""
        self.behind = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._work)
        if self.watches:
            self.send_bytes(self._server.snapshot())

    def send(self, message: Message) -> None:
        """Queue one message."""
        self.send_bytes(pack(message))

    def send_bytes(self, line: bytes) -> None:
        """Queue a packed message."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    def hang_up(self) -> None:
        """Close; what is queued is still sent."""
        if self._transport is not None:
            self._transport.close()

    def _take(self, message: Message) -> None:
        kind = message.get("m")
        if self.is_probe or kind == "hello":
            self.is_probe = True
            self._server.handlers.heard(id(self), self.send_to_probe, message)
        elif kind == "watch":
            self.watches = True
            self._server.was_watched = True
            self.send_bytes(self._server.snapshot())
        elif kind == "do":
            self._server.was_watched = True
            self.send(self._answer(message))

    def send_to_probe(self, message: Message) -> None:
        """As ``send``, unless the probe does not read: it is told again what is pending when it says hello."""
        if not self.behind:
            self.send(message)

    def _answer(self, message: Message) -> Message:
        done: Message = {"m": "done", "n": message.get("n")}
        args = message.get("args")
        try:
            result = self._server.handlers.do(str(message.get("verb")), args if isinstance(args, dict) else {})
        except CockpitError as error:
            return {**done, "ok": False, "error": str(error), "code": error.code}
        return {**done, "ok": True, "result": result}


class Server:
    """Listens for one run."""

    def __init__(self, run: RunDir, record: Record, handlers: Handlers) -> None:
        self._run = run
        self._record = record
        self.handlers = handlers
        self.connections: set[Connection] = set()
        self.was_watched = False
        self._server: asyncio.Server | None = None
        self._inode: int | None = None
        self._snapshot: tuple[object, bytes] = (None, b"")
        record.listeners.append(self._pass_on)

    @property
    def clients(self) -> int:
        """Connections that are not probes."""
        return sum(not connection.is_probe for connection in self.connections)

    async def listen(self) -> None:
        """Bind, in place of whatever an earlier engine left. Raises StartError or OSError."""
        safe_sockets(self._run.sockets)
        path = self._run.socket
        new = path.with_name(f"{self._run.hash}.{os.getpid()}")
        new.unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(str(new))
        bound.listen(64)
        self._inode = os.lstat(new).st_ino
        # renamed only when it listens: nobody is ever turned away between two engines
        os.replace(new, path)
        self._run.point()
        old, self._server = (
            self._server,
            await asyncio.get_running_loop().create_unix_server(lambda: Connection(self), sock=bound),
        )
        if old is not None:
            old.close()

    async def repair(self) -> None:
        """Bind again if the socket file or its pointer is gone; errors wait for the next time."""
        try:
            if os.lstat(self._run.socket).st_ino != self._inode:
                await self.listen()
            elif not self._run.pointer.exists():
                self._run.point()
        except (OSError, CockpitError):
            try:
                await self.listen()
            except (OSError, CockpitError):
                return

    def close(self) -> None:
        """Stop listening, hang up, and take the socket file away."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.hang_up()
        try:
            if os.lstat(self._run.socket).st_ino == self._inode:
                self._run.socket.unlink()
                self._run.pointer.unlink()
        except OSError:
            return

    def snapshot(self) -> bytes:
        """The whole state as one message; packed once for all who ask for the same state."""
        state = self._record.state
        if self._snapshot[0] is not state:
            self._snapshot = (state, pack({"m": "snapshot", "state": to_plain(state)}))
        return self._snapshot[1]

    def _pass_on(self, event: Any) -> None:
        watching = [connection for connection in self.connections if connection.watches and not connection.behind]
        if watching:
            line = pack({"m": "event", "e": event_to_plain(event)})
            for connection in watching:
                connection.send_bytes(line)

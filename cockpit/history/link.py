"""A client's link to the engine of one run: the newest state as it becomes known, and commands with their answers.

Held by the screen, by ``run --headless`` and by ``set --wait``; ``request`` and ``snapshot`` are for a verb that
asks only once. It folds the engine's events itself, so a client sees exactly what the journal holds. It must never
touch the training, and never hand out a state that was not folded from the engine's own words.
"""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

from cockpit.model.errors import CockpitError, LinkLost
from cockpit.wire.codec import event_from_plain, from_plain
from cockpit.wire.framing import Lines, pack

from .fold import fold
from .state import State

__all__ = ["Link", "LinkLost", "request", "snapshot"]

ANSWER_S = 15.0
"""An engine answers at once; one that has not within this many seconds is taken for lost."""
CHUNK = 256 * 1024


class Link:
    """One connection, watched by a task of its own. Make it with ``await Link.connect(path)``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader, self._writer, self._name = reader, writer, name
        self._state: State | None = None
        self._news = asyncio.Event()
        self._unread = False
        self._lost = False
        self._count = 0
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._hearing = asyncio.create_task(self._hear())

    @classmethod
    async def connect(cls, socket_path: Path, timeout_s: float = ANSWER_S) -> Link:
        """A link that watches the engine at ``socket_path``; raises LinkLost where none answers."""
        try:
            opening = asyncio.open_unix_connection(str(socket_path))
            reader, writer = await asyncio.wait_for(opening, timeout_s)
        except OSError as error:
            raise _lost(socket_path.stem) from error
        link = cls(reader, writer, socket_path.stem)
        writer.write(pack({"m": "watch"}))
        return link

    @property
    def state(self) -> State | None:
        """The newest state, None before the first; never waits."""
        return self._state

    async def next_state(self) -> State:
        """Wait for news and return the newest state: whatever arrived meanwhile is one state.

        Raises LinkLost when the engine is gone and everything it said has been handed out.
        """
        while True:
            await self._news.wait()
            self._news.clear()
            if self._lost:
                # stay awake for ever: every later call must hear of the loss as well
                self._news.set()
                if self._unread and self._state is not None:
                    self._unread = False
                    return self._state
                raise _lost(self._name)
            if self._state is not None:
                self._unread = False
                return self._state

    async def command(self, verb: str, **args: Any) -> dict[str, Any]:
        """Ask the engine to do ``verb``; its result. Raises CockpitError with the engine's own sentence and code."""
        if self._lost:
            raise _lost(self._name)
        self._count = n = self._count + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[n] = answer
        try:
            self._writer.write(pack({"m": "do", "n": n, "verb": verb, "args": args}))
            await self._writer.drain()
            return result_of(await asyncio.wait_for(answer, ANSWER_S))
        except OSError as error:
            raise _lost(self._name) from error
        finally:
            self._asked.pop(n, None)

    async def close(self) -> None:
        """Leave; the run goes on. May be called twice."""
        self._hearing.cancel()
        self._writer.close()
        await asyncio.gather(self._hearing, return_exceptions=True)

    async def _hear(self) -> None:
        lines = Lines()
        try:
            while data := await self._reader.read(CHUNK):
                for message in lines.feed(data):
                    self._take(message)
                # a flood must not starve whoever draws: one chunk, then everybody else
                await asyncio.sleep(0)
        except (OSError, TypeError, ValueError, AttributeError, KeyError):
            pass  # a reset, or a snapshot that is none, is an end like any other: reported below, once
        finally:
            self._lost = True
            self._news.set()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(_lost(self._name))

    def _take(self, message: dict[str, Any]) -> None:
        kind = message.get("m")
        if kind == "event" and self._state is not None:
            event = event_from_plain(message.get("e") or {})
            if event is not None:
                self._show(fold(self._state, event))
        elif kind == "snapshot":
            self._show(from_plain(State, message.get("state") or {}))
        elif kind == "done":
            answer = self._asked.get(message.get("n") or 0)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def _show(self, state: State) -> None:
        self._state, self._unread = state, True
        self._news.set()


def _lost(name: str) -> LinkLost:
    return LinkLost(f"the engine of this run does not answer ({name}); the training is not affected")


def result_of(message: dict[str, Any]) -> dict[str, Any]:
    """What a ``done`` message carries; raises CockpitError where the engine refused."""
    if message.get("ok"):
        return dict(message.get("result") or {})
    sentence = str(message.get("error") or "the engine refused without a reason")
    raise CockpitError(sentence, int(message.get("code") or 1))


def request(socket_path: Path, verb: str, *, timeout_s: float = ANSWER_S, **args: Any) -> dict[str, Any]:
    """Ask the engine once and return its result, without an event loop.

    Raises CockpitError with the engine's sentence where it refuses, LinkLost where nobody answers in time.
    """
    return result_of(_ask(socket_path, {"m": "do", "n": 1, "verb": verb, "args": args}, "done", timeout_s))


def snapshot(socket_path: Path, *, timeout_s: float = ANSWER_S) -> State:
    """The state of the run as the engine has it now, without an event loop. Raises LinkLost where nobody answers."""
    try:
        return from_plain(State, _ask(socket_path, {"m": "watch"}, "snapshot", timeout_s).get("state") or {})
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _lost(socket_path.stem) from error


def _ask(socket_path: Path, message: dict[str, Any], answer: str, timeout_s: float) -> dict[str, Any]:
    """Send one message; the first that comes back of the kind ``answer``."""
    until_s = time.monotonic() + timeout_s
    lines = Lines()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(timeout_s)
            wire.connect(str(socket_path))
            wire.sendall(pack(message))
            while (left_s := until_s - time.monotonic()) > 0:
                wire.settimeout(left_s)
                data = wire.recv(CHUNK)
                if not data:
                    break
                for found in lines.feed(data):
                    if found.get("m") == answer:
                        return found
    except OSError as error:
        raise _lost(socket_path.stem) from error
    raise _lost(socket_path.stem)

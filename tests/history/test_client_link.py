"""A client's link against a real unix socket: coalesced states, refusals, a lost engine, and slow answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.events import beginning, sample

from cockpit.history import link as link_file
from cockpit.history.fold import fold_all
from cockpit.history.link import Link, request, snapshot
from cockpit.history.state import State
from cockpit.model.errors import CockpitError, LinkLost
from cockpit.model.events import Event
from cockpit.wire.codec import event_to_plain, to_plain
from cockpit.wire.framing import Lines, pack

Say = Callable[[dict[str, Any]], None]
Answer = Callable[[dict[str, Any], Say], Awaitable[None]]
START = fold_all(beginning())


def event(one: Event) -> dict[str, Any]:
    return {"m": "event", "e": event_to_plain(one)}


@asynccontextmanager
async def engine(path: Path, answer: Answer) -> AsyncIterator[asyncio.Server]:
    """A server that hands each message to ``answer`` with a way to reply."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = Lines()
        try:
            while data := await reader.read(65536):
                for message in lines.feed(data):
                    await answer(message, lambda reply: writer.write(pack(reply)))
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield server
    finally:
        server.close()


async def watched(message: dict[str, Any], say: Say) -> None:
    """What any engine says to a watcher: the state, then five samples at once."""
    if message["m"] == "watch":
        say({"m": "snapshot", "state": to_plain(START)})
        for number in range(5):
            say(event(sample(1001.0 + number, step=number)))


async def settle(link: Link, step: int) -> State:
    """The state that has that step; fails by the test's own time limit."""
    while True:
        state = await asyncio.wait_for(link.next_state(), 10)
        if state.step == step:
            return state


async def body_states_are_folded_and_coalesced(path: Path) -> None:
    async with engine(path, watched):
        link = await Link.connect(path)
        assert link.state is None
        await asyncio.sleep(0.3)
        state = await link.next_state()
        assert state == fold_all([sample(1001.0 + number, step=number) for number in range(5)], START)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(link.next_state(), 0.1)
        assert link.state == state
        await link.close()
        await link.close()


async def body_a_fresh_snapshot_replaces_what_was_known(path: Path) -> None:
    async def answer(message: dict[str, Any], say: Say) -> None:
        await watched(message, say)
        say({"m": "snapshot", "state": to_plain(replace(START, step=900))})
        say(event(sample(1010.0, step=901)))

    async with engine(path, answer):
        link = await Link.connect(path)
        state = await settle(link, 901)
        assert state.latest is not None and state.latest.step == 901
        await link.close()


async def body_commands_are_answered_in_any_order_while_states_arrive(path: Path) -> None:
    held: list[dict[str, Any]] = []

    async def answer(message: dict[str, Any], say: Say) -> None:
        await watched(message, say)
        if message["m"] == "do":
            held.append(message)
        if len(held) == 2:
            for asked in reversed(held):
                say(
                    {
                        "m": "done",
                        "n": asked["n"],
                        "ok": True,
                        "result": {"verb": asked["verb"], **asked["args"]},
                    }
                )

    async with engine(path, answer):
        link = await Link.connect(path)
        first, second = await asyncio.gather(
            link.command("set", knobs={"num_workers": 2}, now=True), link.command("undo")
        )
        assert first == {"verb": "set", "knobs": {"num_workers": 2}, "now": True} and second == {"verb": "undo"}
        await settle(link, 4)
        await link.close()


async def body_a_refusal_is_the_engines_own_sentence_and_code(path: Path) -> None:
    async def answer(message: dict[str, Any], say: Say) -> None:
        if message["m"] == "do":
            say({"m": "done", "n": message["n"], "ok": False, "error": "nothing to undo", "code": 1})

    async with engine(path, answer):
        link = await Link.connect(path)
        with pytest.raises(CockpitError, match=r"^nothing to undo$") as caught:
            await link.command("undo")
        assert caught.value.code == 1 and not isinstance(caught.value, LinkLost)
        await link.close()


async def body_a_lost_engine_is_noticed_after_its_last_word(path: Path) -> None:
    async def answer(message: dict[str, Any], say: Say) -> None:
        if message["m"] == "watch":
            await watched(message, say)
        else:
            raise ConnectionError

    async with engine(path, answer):
        link = await Link.connect(path)
        await asyncio.sleep(0.2)
        with pytest.raises(LinkLost, match="the training is not affected"):
            await link.command("status")
        assert (await link.next_state()).step == 4
        for _ in range(2):
            with pytest.raises(LinkLost):
                await asyncio.wait_for(link.next_state(), 5)
        with pytest.raises(LinkLost):
            await link.command("status")
        assert link.state is not None and link.state.phase == "running"
        await link.close()


async def body_a_client_that_waits_hears_of_the_loss(path: Path) -> None:
    writers: list[Say] = []

    async def answer(message: dict[str, Any], say: Say) -> None:
        writers.append(say)
        if message["m"] == "do":
            raise ConnectionError

    async with engine(path, answer):
        link = await Link.connect(path)
        waiting = asyncio.create_task(link.next_state())
        with pytest.raises(LinkLost):
            await link.command("status")
        with pytest.raises(LinkLost):
            await asyncio.wait_for(waiting, 5)
        await link.close()


async def body_garbage_between_messages_is_skipped(path: Path) -> None:
    async def answer(message: dict[str, Any], say: Say) -> None:
        if message["m"] == "watch":
            say({"m": "event", "e": {"e": "Sampled"}})
            say({"nonsense": [1]})
            await watched(message, say)
            say({"m": "event", "e": {"e": "NotYetInvented"}})
            say({"m": "done", "n": 77, "ok": True})
            say(event(sample(1020.0, step=33)))

    async with engine(path, answer):
        link = await Link.connect(path)
        await settle(link, 33)
        await link.close()


async def body_an_engine_that_never_answers_is_given_up(path: Path) -> None:
    async def answer(message: dict[str, Any], say: Say) -> None:
        await watched(message, say)

    async with engine(path, answer):
        link = await Link.connect(path)
        with pytest.raises(LinkLost):
            await link.command("undo")
        await link.close()


class Nobody:
    """The writing end of a connection that nobody listens to."""

    def write(self, data: bytes) -> None:
        """Into the void."""

    def close(self) -> None:
        """Nothing to close."""


async def body_a_flood_leaves_room_for_others(path: Path) -> None:
    """All of it has arrived already: nothing in reading it would ever wait, and still others get their turn."""
    reader = asyncio.StreamReader()
    reader.feed_data(pack({"m": "snapshot", "state": to_plain(START)}))
    for number in range(15_000):
        reader.feed_data(pack(event(sample(1100.0 + number, step=number))))
    link = Link(reader, Nobody(), path.stem)  # type: ignore[arg-type]
    seen = 0
    while (await link.next_state()).step != 14_999:
        seen += 1
    assert 3 <= seen < 1_500, "newest states in between, and far fewer than events"
    await link.close()


BODIES = [
    body_states_are_folded_and_coalesced,
    body_a_fresh_snapshot_replaces_what_was_known,
    body_commands_are_answered_in_any_order_while_states_arrive,
    body_a_refusal_is_the_engines_own_sentence_and_code,
    body_a_lost_engine_is_noticed_after_its_last_word,
    body_a_client_that_waits_hears_of_the_loss,
    body_garbage_between_messages_is_skipped,
    body_an_engine_that_never_answers_is_given_up,
    body_a_flood_leaves_room_for_others,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__.partition("body_")[2])
def test_link(body: Callable[[Path], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "never_answers" in body.__name__:
        monkeypatch.setattr(link_file, "ANSWER_S", 0.3)
    asyncio.run(asyncio.wait_for(body(tmp_path / "e.sock"), 60))  # type: ignore[arg-type]


def test_no_socket_is_a_lost_engine_in_one_sentence(tmp_path: Path) -> None:
    for attempt in (
        lambda: asyncio.run(Link.connect(tmp_path / "none.sock")),
        lambda: request(tmp_path / "none.sock", "status"),
        lambda: snapshot(tmp_path / "none.sock"),
    ):
        with pytest.raises(LinkLost) as caught:
            attempt()
        assert "\n" not in str(caught.value) and caught.value.code == 1


class Threaded:
    """The same engine in a thread, for the calls that have no event loop."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path, self._answer, self._ready = path, answer, threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        async with engine(self._path, self._answer):
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        self._loop.close()


def test_a_request_and_a_snapshot_need_no_event_loop(tmp_path: Path) -> None:
    async def answer(message: dict[str, Any], say: Say) -> None:
        await watched(message, say)
        if message["m"] == "do":
            say({"m": "event", "e": {}})
            refused = message["verb"] == "undo"
            reply = (
                {"ok": False, "error": "nothing to undo", "code": 1}
                if refused
                else {"ok": True, "result": {"id": "c1"}}
            )
            say({"m": "done", "n": 1, **reply})

    with Threaded(tmp_path / "e.sock", answer):
        assert request(tmp_path / "e.sock", "set", knobs={"num_workers": 2}) == {"id": "c1"}
        with pytest.raises(CockpitError, match="nothing to undo"):
            request(tmp_path / "e.sock", "undo")
        assert snapshot(tmp_path / "e.sock") == START


def test_a_request_that_nobody_answers_ends(tmp_path: Path) -> None:
    with Threaded(tmp_path / "e.sock", watched), pytest.raises(LinkLost):
        request(tmp_path / "e.sock", "status", timeout_s=0.3)

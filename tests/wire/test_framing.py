"""Messages survive any cutting of the stream; a garbled peer costs a count and nothing more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cockpit.wire import framing
from cockpit.wire.framing import Lines, pack

finite = some.floats(allow_nan=False, allow_infinity=False)
plain = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | finite | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
messages = some.lists(some.dictionaries(some.text(max_size=8), plain, max_size=5), max_size=6)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends)]  # noqa: B905 - one shorter on purpose


@settings(deadline=None)
@given(messages, some.lists(some.integers(0, 10**6), max_size=20))
def test_messages_come_out_whole_however_the_bytes_arrive(sent: list[dict[str, Any]], places: list[int]) -> None:
    lines = Lines()
    got = [message for piece in cut(b"".join(map(pack, sent)), places) for message in lines.feed(piece)]
    assert got == sent and lines.bad == 0


@settings(deadline=None)
@given(some.lists(some.binary(max_size=40), max_size=10))
def test_garbage_never_raises_and_the_next_message_is_heard(pieces: list[bytes]) -> None:
    lines = Lines()
    for piece in pieces:
        lines.feed(piece)
    assert lines.feed(b"\n" + pack({"m": "tick"}))[-1] == {"m": "tick"}


@pytest.mark.parametrize(
    "line",
    [b"{", b"[1]", b"7", b'"m"', b"\xff\xfe{}", b"{}{}", b"[" * 100_000],
    ids=lambda line: repr(line[:8]),
)
def test_a_line_that_is_no_object_is_counted(line: bytes) -> None:
    lines = Lines()
    assert lines.feed(line + b"\n") == [] and lines.bad == 1


@pytest.mark.parametrize("piece", [10, 1000, 10_000_000])
def test_a_line_beyond_the_limit_is_skipped_once_and_not_kept(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(framing, "LIMIT", 5000)
    lines = Lines()
    data = b'{"long":"' + b"x" * 20_000 + b'"}\n' + pack({"m": "after"})
    got = [message for begin in range(0, len(data), piece) for message in lines.feed(data[begin : begin + piece])]
    assert got == [{"m": "after"}] and lines.bad == 1


def test_what_json_cannot_say_becomes_null() -> None:
    line = pack({"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": float("-inf")}})
    assert json.loads(line) == {"a": None, "b": [None, 1.0], "c": {"d": None}}


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    assert pack({"text": "a\nb\r\u2028\x00\udcff"}).count(b"\n") == 1

"""The training hears once that a change of its kernels is kept: until then it holds what it needs to take it back."""

from __future__ import annotations

from dataclasses import replace

from hearing import Room

from cockpit.history.state import Entry


def entry(name: str, knob: str, state: str) -> Entry:
    return Entry(
        id=name,
        asked={knob: "bf16"},
        asked_s=1000.0,
        now=False,
        loader=None,
        origin="person",
        state=state,
        state_s=1001.0,
    )


def kept(room: Room, key: int) -> list[str]:
    room.ears.look_again(room.state, room.at_s)
    return [message["id"] for message in room.sent.get(key, ()) if message["m"] == "kept"]


def test_once_and_only_of_kernels() -> None:
    room = Room()
    room.hello(1, 50)
    ledger = [
        entry("a", "autocast", "settling"),
        entry("b", "num_workers", "kept"),
        entry("c", "matmul", "rolled_back"),
    ]
    room.state = replace(room.state, ledger=tuple(ledger))
    assert kept(room, 1) == []
    ledger[0] = replace(ledger[0], state="kept")
    room.state = replace(room.state, ledger=tuple(ledger))
    assert kept(room, 1) == ["a"]
    assert kept(room, 1) == ["a"], "not again"


def test_a_training_that_was_away_hears_it_when_it_is_back() -> None:
    room = Room()
    room.state = replace(room.state, ledger=(entry("a", "compile", "kept"),))
    room.ears.look_again(room.state, room.at_s)
    room.hello(1, 50)
    assert kept(room, 1) == ["a"]

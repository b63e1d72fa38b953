"""Several ranks: who is told of, who leads, whose figures are shown, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hearing import Room, tick
from ranks_room import Rank, ask, entry_of, look, two

from cockpit.engine import changes
from cockpit.history.ranks import gone, headline
from cockpit.history.status import status_of
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeAsked, ChangeMoved, LoadersSeen, ProbeConnected
from cockpit.model.ranks import RanksSeen


def test_every_rank_is_told_of_and_whose_the_figures_are() -> None:
    room, _ = two()
    assert status_of(room.state, room.at_s)["ranks"][0]["step"] is None, "two of them, and nothing measured yet"
    second = 1_000_000_000
    room.hear(0, **tick(step=40, steps=10, samples=80, wall_ns=second, wait_ns=second // 2))
    room.hear(1, **tick(step=38, steps=5, samples=40, wall_ns=second, wait_ns=None))
    (seen,) = [event for event in look(room) if isinstance(event, RanksSeen)]
    assert [(info.rank, info.step, info.wait_ms, info.samples_per_s) for info in seen.ranks] == [
        (0, 40, 50.0, 80.0),
        (1, 38, None, 40.0),
    ]
    told = status_of(room.state, room.at_s)
    assert [(rank["rank"], rank["pid"], rank["step"], rank["wait_ms"]) for rank in told["ranks"]] == [
        (0, 50, 40, 50.0),
        (1, 51, 38, None),
    ]
    assert told["figures_of"] == headline(room.state) == "rank 0 of 2"
    assert look(room) == [], "not twice a second"


def test_a_rank_that_has_gone_is_told_of() -> None:
    room, (first, second) = two(world=None)
    room.hear(1, **tick(step=38, steps=5))
    look(room)
    first.die()
    (seen,) = look(room)
    assert [(info.rank, info.alive) for info in seen.ranks] == [(0, False), (1, True)]
    assert [info.rank for info in gone(room.state)] == [0] and headline(room.state) == "rank 1 of 2"
    fresh = Rank(room, 0)
    fresh.key, fresh.pid = 7, 77
    room.hello(7, 77, rank=0)
    (seen,) = look(room)
    assert [(info.rank, info.pid, info.alive) for info in seen.ranks] == [(0, 77, True), (1, 51, True)]
    assert second.alive


def test_a_parent_that_only_starts_the_training_is_no_rank() -> None:
    room = Room()
    room.hello(1, 40, trains=False)
    assert look(room) == []
    room.hello(2, 41)
    room.hear(2, **tick(step=9, steps=9))
    look(room)
    told = status_of(room.state, room.at_s)
    assert [rank["pid"] for rank in told["ranks"]] == [41] and told["figures_of"] is None
    ask(room)
    carry = changes.ask(room.state, room.at_s, "c2", {"threads": 1})
    assert carry.result["asked"] == {"num_workers": 4, "threads": 1}, "one training: all its knobs"


def test_a_parent_that_outlives_the_training_does_not_wipe_its_loaders_out() -> None:
    room = Room()
    room.hello(1, 40, trains=False)
    room.hello(2, 41)
    room.hear(2, **loaders(report("num_workers", 2)))
    room.ears.lost(2, room.at_s)
    assert room.hear(1, m="loaders", loaders=[], kernels=[]) == []
    assert [loader.id for loader in room.state.loaders] == ["train.py:3"]


def test_one_training_alone_is_not_told_of_as_a_rank() -> None:
    room = Room()
    room.hello(1, 50)
    room.hear(1, **tick(step=9, steps=9))
    assert look(room) == [] and look(room, 10.0) == []
    room.ears.lost(1, room.at_s)
    assert look(room) == []


def test_numbers_by_order_of_appearance_where_nobody_gives_any() -> None:
    room = Room()
    for key in (1, 2, 3):
        room.hello(key, 40 + key, trains=key > 1)
    look(room)
    assert [(rank["rank"], rank["pid"]) for rank in status_of(room.state, room.at_s)["ranks"]] == [(0, 42), (1, 43)]
    room.ears.lost(2, room.at_s)
    room.hello(4, 44)
    look(room)
    assert [(rank["rank"], rank["pid"]) for rank in status_of(room.state, room.at_s)["ranks"]] == [(0, 44), (1, 43)]


def test_one_that_has_done_its_part_neither_leads_nor_holds_a_change_up() -> None:
    room = Room()
    parent, child = Rank(room, 0), Rank(room, 1)
    for rank in (parent, child):
        rank.room.hello(rank.key, rank.pid)
    room.at_s += 40
    room.hear(1, **tick(step=5, steps=5))
    look(room)
    assert room.ears.lead().pid == child.pid  # type: ignore[union-attr]
    ask(room)
    for _ in range(3):
        child.rest()
    assert entry_of(room).state == "settling"  # type: ignore[union-attr]
    room.hear(0, **tick(step=9, steps=1))
    look(room)
    assert room.ears.lead().pid == parent.pid, "it goes on after all"  # type: ignore[union-attr]


# ---- what they have in common ----


def report(name: str, in_force: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "script": 0, "in_force": in_force, **more}


def loaders(*reports: dict[str, Any]) -> dict[str, Any]:
    return {"m": "loaders", "loaders": [{"id": "train.py:3", "role": "train", "kind": "map", "knobs": list(reports)}]}


def test_where_ranks_differ_that_is_said_instead_of_a_figure() -> None:
    room, _ = two()
    room.hear(0, **loaders(report("num_workers", 2)))
    assert room.hear(1, **loaders(report("num_workers", 2))) == []
    (seen,) = room.hear(1, **loaders(report("num_workers", 0, can=False, can_now=False, reason="an open file")))
    (row,) = seen.loaders[0].knobs
    assert (row.in_force, row.note) == (None, "rank 0 has 2, rank 1 0")
    assert (row.can, row.reason) == (False, "rank 1: an open file")
    room.hear(1, **loaders(report("num_workers", 2)))
    assert status_of(room.state, room.at_s)["knobs"]["num_workers"]["in_force"] == 2


def test_what_processes_took_that_know_nothing_of_each_other_comes_back_from_both() -> None:
    """Each read the schedule before anybody knew that there are several."""
    room, _ = two()
    room.ears.schedule["at0"] = ChangeAsked(0.0, "at0", {"autocast": "bf16"}, True, None, "schedule")
    word = {"m": "change", "id": "at0", "state": "settling", "step": 3, "stall_ms": 0.0, "drain": 0, "capacity": 0}
    for key in (0, 1):
        room.hear(key, **word, before={"autocast": "script"}, in_force={"autocast": "bf16"}, reason=None)
    back = {key: [told for told in room.sent[key] if told["m"] == "ask"][-1] for key in (0, 1)}
    assert [told["knobs"] for told in back.values()] == [{"autocast": "script"}] * 2
    assert room.state.ledger[-1].state == "applying"
    for key, told in back.items():
        room.hear(key, **{**word, "id": told["id"]}, before={"autocast": "bf16"}, in_force={"autocast": "off"})
    (entry,) = room.state.ledger
    assert entry.state == "rolled_back" and entry.reason == "autocast: not with several ranks yet"


def test_the_way_back_to_the_script_is_open_to_several_ranks() -> None:
    room, _ = two()
    look(room)
    assert changes.ask(room.state, room.at_s, "c1", {"threads": "script"}).result == {"id": "c1"}


@pytest.mark.parametrize("world", [None, 2])
def test_knobs_of_the_whole_training_are_greyed_out(world: int | None) -> None:
    room, _ = two(world)
    (seen,) = room.hear(0, **loaders(report("num_workers", 0)), kernels=[report("threads", 2)])
    assert isinstance(seen, LoadersSeen)
    assert (seen.kernels[0].can, seen.kernels[0].can_now, seen.kernels[0].in_force) == (False, False, 2)
    assert "several ranks" in str(seen.kernels[0].reason) and seen.loaders[0].knobs[0].can
    look(room)
    with pytest.raises(CockpitError, match="threads: not with several ranks yet"):
        changes.ask(room.state, room.at_s, "c1", {"num_workers": 2, "threads": 1})
    assert changes.ask(room.state, room.at_s, "c1", {"num_workers": 2}).result == {"id": "c1"}


def test_one_rank_s_words_pass_as_they_came() -> None:
    room = Room()
    assert isinstance(room.hello(1, 50)[0], ProbeConnected)
    ask(room)
    told = {"m": "change", "id": "c1", "step": 3, "stall_ms": 4.0, "drain": 2, "capacity": 8}
    (moved,) = room.hear(1, **told, state="settling", before={"num_workers": 0}, in_force={"num_workers": 4})
    assert moved == ChangeMoved(1010.0, "c1", "settling", 3, 4.0, 2, 8, {"num_workers": 0}, {"num_workers": 4})
    (back,) = room.hear(1, **told, state="rolled_back", reason="out of memory")
    assert (back.state, back.reason, back.drain, back.capacity) == ("rolled_back", "out of memory", 2, 8)

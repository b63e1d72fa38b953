"""Several ranks: one trial over all of them, in whatever order they speak."""

from __future__ import annotations

import pytest
from hearing import Room
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks_room import NEW, OLD, Rank, ask, carry_out, entry_of, look, settle, two

from cockpit.engine import changes
from cockpit.engine.together import CAUGHT_UP_S, PATIENCE_S
from cockpit.history.fold import fold
from cockpit.model.events import BlockMeasured, ChangeAsked

FATES = st.lists(st.sampled_from(["taken", "taken", "refused", "rolled_back", "late"]), min_size=1, max_size=3)
MOVES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["receive", "land", "speak", "speak", "look", "drop", "die", "now"])),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(FATES, MOVES, st.booleans(), st.booleans())
def test_all_have_it_or_none_has_it_in_every_order(
    fates: list[str], moves: list[tuple[int, str]], now: bool, late: bool
) -> None:
    room = Room()
    ranks = [Rank(room, key, fate) for key, fate in enumerate(fates)]
    for rank in ranks[: len(ranks) - late]:
        rank.join()
    if not room.ears.probes:
        ranks[0].join()
    ask(room, now=now)
    for number, move in moves:
        rank = ranks[number % len(ranks)]
        if move == "look":
            look(room)
        elif move == "drop":
            if any(entry.state == "queued" for entry in room.state.ledger):
                carry_out(room, changes.drop(room.state, room.at_s))
        elif move == "die":
            if rank.alive and sum(rank.alive for rank in ranks) > 1 and rank.key in room.ears.probes:
                rank.die()
        elif move == "now":
            pass
        elif rank.alive:
            getattr(rank, move)()
    for rank in ranks:
        if rank.alive and rank.key not in room.ears.probes:
            rank.join()
    settle(room, ranks)
    living = [rank for rank in ranks if rank.alive]
    entry, values = entry_of(room), {rank.value for rank in living}
    if entry is None or entry.state in ("refused", "rolled_back"):
        assert values == {OLD}, (entry, [vars(rank) for rank in living])
        assert entry is None or entry.reason
    else:
        assert entry.state in ("settling", "kept") and values == {NEW}, (entry, values)
        assert not any(rank.fate != "taken" for rank in living)


def test_in_force_when_the_last_has_it_and_applying_until_then() -> None:
    room, (first, second) = two()
    ask(room)
    for _ in range(3):
        first.rest()
    entry = entry_of(room)
    assert entry is not None and entry.state == "applying"
    second.rest()
    assert entry_of(room).state == "applying"  # type: ignore[union-attr]
    second.rest()
    entry = entry_of(room)
    assert entry is not None and entry.state == "settling" and entry.change == {"num_workers": (OLD, NEW)}
    assert room.state.current.change == "c1"


def test_one_fails_and_the_other_is_asked_back_with_its_name_said() -> None:
    room, (first, second) = two(fates=("taken", "refused"))
    ask(room)
    for _ in range(2):
        first.rest()
    assert first.value == NEW
    second.rest()
    entry = entry_of(room)
    assert entry is not None and entry.state == "applying", "it is still in force on one of them"
    assert entry.reason == "rank 1: an open file"
    assert room.sent[0][-1] == {
        "m": "ask",
        "id": "c1-0",
        "knobs": {"num_workers": OLD},
        "now": True,
        "loader": None,
    }
    settle(room, [first, second])
    entry = entry_of(room)
    assert entry is not None and (entry.state, entry.reason) == ("rolled_back", "rank 1: an open file")
    assert (first.value, second.value) == (OLD, OLD)


def test_refused_where_nobody_had_it_yet() -> None:
    room, (first, second) = two(fates=("refused", "taken"))
    ask(room)
    first.rest()
    entry = entry_of(room)
    assert entry is not None and (entry.state, entry.reason) == ("refused", "rank 0: an open file")
    second.receive()
    settle(room, [first, second])
    assert second.value == OLD and second.known.keys() == {"c1"}


def test_blocks_after_the_way_back_belong_to_what_was_before() -> None:
    room, (first, second) = two(fates=("taken", "late"))
    ask(room)
    settle(room, [first])
    second.receive()
    for _ in range(2):
        second.land()
        second.speak()
    assert room.state.current.change == "c1"
    second.land()
    second.speak()
    settle(room, [first, second])
    assert room.state.current.change is None
    figures = dict.fromkeys(("wall_ns", "wait_ns", "start_ns", "forward_ns", "backward_ns", "optimizer_ns"), 10**9)
    (block,) = room.hear(0, m="block", step=9, steps=10, samples=10, epoch=0, change="c1-0", capacity=0, **figures)
    assert isinstance(block, BlockMeasured) and block.change is None
    (later,) = room.hear(0, m="block", step=9, steps=10, samples=10, epoch=0, change="c2", capacity=0, **figures)
    assert later.change == "c2"


def test_a_rank_that_dies_leaves_nothing_pending() -> None:
    room, (first, second) = two()
    ask(room)
    for _ in range(3):
        first.rest()
    second.die()
    look(room)
    entry = entry_of(room)
    assert entry is not None and entry.state == "settling"


def test_a_rank_that_joins_late_takes_what_the_others_have() -> None:
    room = Room()
    first, late = Rank(room, 0), Rank(room, 1)
    first.join()
    ask(room)
    settle(room, [first])
    assert entry_of(room).state == "settling"  # type: ignore[union-attr]
    late.join()
    look(room, CAUGHT_UP_S)
    settle(room, [first, late])
    assert (late.value, list(late.known)) == (NEW, ["c1"])
    assert list(first.known) == ["c1"], "who has it is not asked again"


def test_ranks_that_come_back_to_a_new_engine_are_waited_for() -> None:
    room, ranks = two(world=None)
    look(room)
    again = Room()
    again.state = room.state
    again.state = fold(again.state, ChangeAsked(1010.0, "c1", {"num_workers": NEW}))
    first, second = (Rank(again, rank.key) for rank in ranks)
    first.join()
    for _ in range(3):
        first.rest()
    assert entry_of(again).state == "applying", "the other one is on its way"  # type: ignore[union-attr]
    second.join()
    settle(again, [first, second])
    assert entry_of(again).state == "settling"  # type: ignore[union-attr]


def test_a_rank_that_never_comes_is_waited_for_a_while_only() -> None:
    room = Room()
    lone = Rank(room, 0, world=2)
    lone.join()
    ask(room)
    for _ in range(3):
        lone.rest()
    assert entry_of(room).state == "applying"  # type: ignore[union-attr]
    look(room, PATIENCE_S)
    assert entry_of(room).state == "settling"  # type: ignore[union-attr]


def test_undo_goes_to_every_rank() -> None:
    room, ranks = two()
    ask(room)
    settle(room, ranks)
    carry_out(room, changes.undo(room.state, room.at_s, "u1"))
    settle(room, ranks)
    assert [rank.value for rank in ranks] == [OLD, OLD]
    assert [entry.state for entry in room.state.ledger] == ["reverted", "settling"]
    carry_out(room, changes.redo(room.state, room.at_s, "r1"))
    settle(room, ranks)
    assert [rank.value for rank in ranks] == [NEW, NEW]


def test_scheduled_changes_are_one_trial_too() -> None:
    room, (first, second) = two()
    room.ears.schedule["at0"] = ChangeAsked(0.0, "at0", {"num_workers": NEW}, True, None, "schedule")
    for rank in (first, second):
        rank.known["at0"] = {"num_workers": NEW}
        rank.queue.append("at0")
    first.land()
    first.speak()
    asked, moved = room.state.ledger[0], room.state.ledger
    assert (asked.origin, asked.state, len(moved)) == ("schedule", "applying", 1)
    settle(room, [first, second])
    assert entry_of(room, "at0").state == "settling"  # type: ignore[union-attr]


@pytest.mark.parametrize("named", [None, "val.py:9"])
def test_a_rank_without_such_a_loader_is_not_waited_for(named: str | None) -> None:
    room, (first, second) = two()
    kinds = [{"id": "train.py:3", "role": "train", "kind": "map"}, {"id": "val.py:9", "role": "other", "kind": "map"}]
    room.hear(0, m="loaders", loaders=kinds)
    room.hear(1, m="loaders", loaders=kinds[:1] if named else kinds[1:])
    ask(room, loader=named)
    for _ in range(3):
        first.rest()
    assert entry_of(room).state in ("settling", "kept")  # type: ignore[union-attr]
    assert second.value == OLD


# ---- who there is ----

"""Several ranks: one trial over all of them, in whatever order they speak; who is told of, and what is refused."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hearing import Room, tick
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.engine import changes
from cockpit.engine.together import CAUGHT_UP_S, PATIENCE_S
from cockpit.history.fold import fold
from cockpit.history.ranks import gone, headline
from cockpit.history.state import Entry
from cockpit.history.status import status_of
from cockpit.model.errors import CockpitError
from cockpit.model.events import BlockMeasured, ChangeAsked, ChangeMoved, LoadersSeen, ProbeConnected
from cockpit.model.ranks import RanksSeen

OLD, NEW = 0, 4


class Rank:
    """A process that takes changes as the probe does: in the order asked, a drop only while still queued.

    ``fate`` is what becomes of the change under test: taken, refused, rolled_back (at once), or late (rolled back
    after it was said to be in force).
    """

    def __init__(self, room: Room, key: int, fate: str = "taken", world: int | None = None) -> None:
        self.room, self.key, self.pid, self.fate, self.world = room, key, 50 + key, fate, world
        self.value, self.failed = OLD, False
        self.known: dict[str, dict[str, Any]] = {}
        self.queue: list[str] = []
        self.applying: deque[tuple[str, int]] = deque()
        self.words: deque[dict[str, Any]] = deque()
        self.inbox: deque[dict[str, Any]] = deque()
        self.read = 0
        self.alive = True

    def join(self) -> None:
        self.room.hello(self.key, self.pid, rank=self.key, world=self.world)

    def receive(self) -> None:
        """One message that the engine has sent."""
        sent = self.room.sent.get(self.key, [])
        if self.read == len(sent):
            return
        message = sent[self.read]
        self.read += 1
        name = message["id"]
        if message["m"] == "ask" and name not in self.known:
            self.known[name] = message["knobs"]
            self.queue.append(name)
        elif message["m"] == "drop" and name in self.queue:
            self.queue.remove(name)
            self._say(name, "dropped")

    def land(self) -> None:
        """The next batch, or the next epoch."""
        if self.applying:
            name, before = self.applying.popleft()
            if self.fate == "rolled_back" and "-" not in name and not self.failed:
                self.value, self.failed = before, True
                self._say(name, "rolled_back", before=before, reason="out of memory")
            else:
                self._say(name, "settling", before=before)
        elif self.queue:
            name = self.queue.pop(0)
            if self.fate == "refused" and "-" not in name:
                self._say(name, "refused", reason="an open file")
                return
            before, wanted = self.value, self.known[name]["num_workers"]
            self.value = OLD if wanted == "script" else wanted
            self.applying.append((name, before))
            self._say(name, "applying", before=before)
        elif self.fate == "late" and not self.failed and self.value == NEW:
            self.value, self.failed = OLD, True
            self._say("c1", "rolled_back", before=OLD, reason="a worker died")

    def _say(self, name: str, state: str, before: int | None = None, reason: str | None = None) -> None:
        told = {} if before is None else {"num_workers": before}
        self.words.append({"m": "change", "id": name, "state": state, "step": 5, "before": told, "reason": reason,
                           "in_force": {"num_workers": self.value} if state == "settling" else {}})  # fmt: skip

    def speak(self) -> None:
        """One word reaches the engine."""
        if self.words and self.alive:
            self.room.hear(self.key, **self.words.popleft())

    def die(self) -> None:
        self.alive = False
        for event in self.room.ears.lost(self.key, self.room.at_s):
            self.room.state = fold(self.room.state, event)

    def rest(self) -> None:
        self.receive()
        self.land()
        self.speak()


def ask(room: Room, value: int = NEW, change: str = "c1", **more: Any) -> None:
    carry_out(room, changes.ask(room.state, room.at_s, change, {"num_workers": value}, **more))


def carry_out(room: Room, decision: changes.Decision) -> None:
    """As ``verbs`` does."""
    entries = {entry.id: entry for entry in room.state.ledger}
    for message in decision.messages:
        if message["m"] == "drop":
            entry = entries[message["id"]]
            room.ears.withdrawn[entry.id] = ChangeAsked(1.0, entry.id, entry.asked, entry.now, entry.loader)
    for event in decision.events:
        room.state = fold(room.state, event)
    for message in decision.messages:
        room.ears.tell(message)


def look(room: Room, later_s: float = 0.5) -> list[Any]:
    room.at_s += later_s
    events = room.ears.look_again(room.state, room.at_s)
    for event in events:
        room.state = fold(room.state, event)
    return events


def settle(room: Room, ranks: list[Rank]) -> None:
    """Until nobody has anything to do any more."""
    for _ in range(40):
        for rank in ranks:
            if rank.alive:
                rank.rest()
    for _ in range(20):
        look(room)
        for rank in ranks:
            if rank.alive:
                rank.rest()


def entry_of(room: Room, change: str = "c1") -> Entry | None:
    return next((entry for entry in room.state.ledger if entry.id == change), None)


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


def two(world: int | None = 2, fates: tuple[str, str] = ("taken", "taken")) -> tuple[Room, list[Rank]]:
    room = Room()
    ranks = [Rank(room, key, fate, world) for key, fate in enumerate(fates)]
    for rank in ranks:
        rank.join()
    return room, ranks


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

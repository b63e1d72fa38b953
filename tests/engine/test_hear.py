"""Probe messages become events: sums of ticks, who leads, changes that overtake each other, garbage."""

from __future__ import annotations

from typing import Any

from hearing import Room, tick
from hypothesis import given
from hypothesis import strategies as st

from cockpit.engine.hear import Ears
from cockpit.engine.told import schedule_of
from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.model.compiled import CompiledSeen
from cockpit.model.events import (
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    EventsDropped,
    LoadersSeen,
    ProbeConnected,
    ProbeLost,
)
from cockpit.model.knobs import ANEW, RESTART
from cockpit.model.names import SCHEMA


def test_ticks_add_up_and_unknown_stays_unknown() -> None:
    room = Room()
    room.hello(1, 50)
    assert room.ears.ticks.take(1010.0) == {}
    room.hear(1, **tick(steps=2, samples=32, wall_ns=100_000_000, wait_ns=None))
    room.hear(1, **tick(steps=1, samples=16, wall_ns=50_000_000, wait_ns=None, step=8, queue=[1, 4]))
    taken = room.ears.ticks.take(1010.5)
    assert (taken["steps"], taken["samples"], taken["wall_s"], taken["wait_s"]) == (3, 48, 0.15, None)
    assert (taken["step"], taken["queue"], taken["doing"]) == (8, (1, 4), "forward")
    assert taken["doing_for_s"] == 0.502, "a probe that cannot speak is still in the same phase"
    later = room.ears.ticks.take(1011.0)
    assert "steps" not in later and later["doing_for_s"] == 1.002 and later["step"] == 8
    assert room.ears.ticks.take(1010.0 + 31) == {}


def test_no_steps_is_a_measured_zero_but_a_tick_without_figures_hides_no_sum() -> None:
    room = Room()
    room.hello(1, 50)
    room.hear(1, **tick(steps=0, samples=None))
    room.hear(1, **tick(steps=2, samples=8))
    assert room.ears.ticks.take(1010.0)["samples"] == 8
    room.hear(1, **tick(steps=2, samples=None))
    room.hear(1, **tick(steps=2, samples=8))
    assert room.ears.ticks.take(1010.0)["samples"] is None
    room.hear(1, **tick())
    assert room.ears.ticks.take(1010.0)["samples"] == 0


def test_rank_zero_leads_and_helpers_are_no_ranks() -> None:
    room = Room()
    launcher = room.hello(1, 40, trains=False)
    assert [type(event) for event in launcher] == [ProbeConnected]
    loaders = [{"id": "train.py:3", "role": "train", "kind": "map", "workers": [91]}]
    room.hello(3, 52, rank=1, world=2)
    room.hear(3, m="loaders", loaders=loaders)
    assert room.ears.worker_pids() == (91,)
    events = room.hello(2, 51, rank=0, world=2)
    assert [event.rank for event in events if isinstance(event, ProbeConnected)] == [0]
    assert room.hear(3, **tick(steps=1)) == [] and room.ears.ticks.take(1010.0) == {}
    assert (
        room.hear(3, m="block", step=1, steps=10, wall_ns=1e9, start_ns=0, backward_ns=0, optimizer_ns=0, epoch=0) == []
    )
    room.hear(2, **tick(steps=1, samples=4))
    assert room.ears.ticks.take(1010.0)["samples"] == 4
    assert room.hello(4, 60, trains=False) == [], "torch was imported by something else"
    assert room.ears.lost(4, 1011.0) == []
    after = room.ears.lost(2, 1011.0)
    assert after[0] == ProbeLost(1011.0, 51) and isinstance(after[1], LoadersSeen)


def test_a_helper_that_begins_to_train_becomes_the_training() -> None:
    room = Room()
    room.hello(1, 40, trains=False)
    room.hello(2, 41, trains=False)
    lead = room.ears.lead()
    assert lead is not None and lead.pid == 40
    events = room.hello(2, 41, trains=True)
    assert isinstance(events[0], ProbeConnected) and room.ears.lead().pid == 41  # type: ignore[union-attr]


def test_a_helper_that_ticks_steps_is_announced() -> None:
    room = Room()
    room.hello(1, 40, trains=False)
    room.hello(2, 41, trains=False)
    assert [type(event) for event in room.hear(2, **tick(steps=3, samples=9))] == [ProbeConnected]
    assert room.ears.ticks.take(1010.0)["samples"] == 9
    assert [rank.pid for rank in room.state.ranks] == [40, 41]


def test_reconnecting_process_is_told_what_is_pending() -> None:
    room = Room()
    room.hello(1, 50)
    room.state = fold_all([ChangeAsked(1011.0, "c1", {"num_workers": 2}, now=True)], room.state)
    assert room.ears.lost(1, 1012.0) == [ProbeLost(1012.0, 50)]
    room.hello(2, 50)
    assert room.sent[2] == [{"m": "ask", "id": "c1", "knobs": {"num_workers": 2}, "now": True, "loader": None}]
    # an old connection that closes after the new one is there loses nothing
    room.hello(3, 50)
    assert room.ears.lost(2, 1013.0) == []


def test_change_that_was_withdrawn_too_late_comes_back_to_the_ledger() -> None:
    room = Room()
    room.hello(1, 50)
    asked = ChangeAsked(1009.0, "c1", {"num_workers": 2})
    room.ears.withdrawn["c1"] = asked
    events = room.hear(
        1,
        m="change",
        id="c1",
        state="settling",
        step=5,
        before={"num_workers": 0},
        in_force={"num_workers": 2},
    )
    assert [type(event) for event in events] == [ChangeAsked, ChangeMoved]
    assert room.state.current.change == "c1" and room.state.ledger[0].change == {"num_workers": (0, 2)}
    again = room.hear(1, m="change", id="c1", state="settling", step=5)
    assert again == [], "told again after a reconnect"
    assert room.hear(1, m="change", id="c9", state="dropped") == []


def test_scheduled_change_enters_the_ledger_when_its_moment_comes() -> None:
    at = [{"id": "at0", "when": "step", "n": 7, "knobs": {"num_workers": 2}, "loader": None}]
    room = Room(Ears(schedule_of({"at": at})))
    room.hello(1, 50)
    asked, moved = room.hear(1, m="change", id="at0", state="applying", step=7)
    assert (asked.origin, asked.now, asked.at_s, moved.state) == ("schedule", True, 1010.0, "applying")
    assert len(room.hear(1, m="change", id="at0", state="refused", reason="no")) == 1


def test_what_is_said_of_a_change_before_it_is_applied_stays_with_it() -> None:
    room = Room()
    room.hello(1, 50)
    room.state = fold_all([ChangeAsked(1010.0, "c1", {"num_workers": 8}, now=True)], room.state)
    word = {"m": "change", "id": "c1", "step": 3, "drain": 0, "capacity": 0}
    (told,) = room.hear(1, **word, state="queued", note="8 workers may need 1.6 GB of /dev/shm")
    assert (told.state, told.note) == ("queued", "8 workers may need 1.6 GB of /dev/shm")
    (entry,) = room.state.ledger
    assert (entry.state, entry.note, entry.state_s) == ("queued", told.note, 1010.0)
    assert room.hear(1, **{**word, "id": "at0"}, state="queued", note="of one that is scheduled for later") == []
    room.hear(1, **word, state="applying", note=told.note)
    room.hear(1, **word, state="rolled_back", reason="out of shared memory", stall_ms=340.5, note=told.note)
    (entry,) = room.state.ledger
    assert (entry.state, entry.note, entry.stall_ms) == ("rolled_back", told.note, 340.5)


def test_a_probe_of_a_later_cockpit_is_not_guessed_at() -> None:
    room = Room()
    assert room.hello(1, 50, schema=SCHEMA + 1) == [] and room.ears.bad == 1
    assert room.hear(1, **tick(steps=1)) == [] and room.ears.lead() is None
    assert room.hello(2, 51, schema=SCHEMA)


def test_blocks_epochs_and_drops() -> None:
    room = Room()
    room.hello(1, 50)
    figures = {
        "wall_ns": 2e9,
        "wait_ns": 1e9,
        "start_ns": 0,
        "forward_ns": None,
        "backward_ns": 5e8,
        "optimizer_ns": 1e8,
    }
    (block,) = room.hear(1, m="block", step=20, steps=10, samples=160, epoch=1, change=None, capacity=4, **figures)
    assert block == BlockMeasured(1010.0, 20, 10, 160, 2.0, 1.0, 0.0, None, 0.5, 0.1, 1, None, 4)
    (epoch,) = room.hear(1, m="epoch", loader="a:1", epoch=2, steps=9, samples=None, wall_ns=3e9, start_ns=4e7)
    assert (epoch.wall_s, epoch.start_ms, epoch.samples) == (3.0, 40.0, None)
    assert room.hear(1, m="dropped", count=3) == [EventsDropped(1010.0, 3)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    [
        "pid",
        "loaders",
        "steps",
        "step",
        "samples",
        "wall_ns",
        "id",
        "state",
        "epoch",
        "count",
        "before",
        "queue",
        "off",
    ]
)


@given(st.sampled_from(["hello", "loaders", "tick", "block", "epoch", "change", "dropped", "x"]),
       st.dictionaries(names, json_values, max_size=6))  # fmt: skip
def test_garbage_changes_nothing_and_raises_nothing(kind: str, fields: dict[str, Any]) -> None:
    room = Room()
    room.hello(1, 50)
    room.hear(1, **{**fields, "m": kind})
    room.ears.ticks.take(1012.0)
    assert isinstance(room.state, State)


def test_what_was_compiled_is_told_when_it_grew_and_before_the_change_that_follows() -> None:
    room = Room()
    room.hello(1, 11)
    figures = {"compile_ns": 2 * 10**9, "graphs": 3, "recompiles": 1}
    (event,) = room.hear(1, **tick(**figures))
    assert event == CompiledSeen(1010.0, 2.0, 3, 1)
    assert room.hear(1, **tick(**figures)) == [], "nothing new"
    assert room.hear(1, **tick()) == [CompiledSeen(1010.0)], "an older probe does not tell"
    room.hear(1, **tick(**figures))
    room.state = fold_all([ChangeAsked(1010.0, "c1", {"compile": "default"})], room.state)
    more = {"compile_ns": 5 * 10**9, "graphs": 4, "recompiles": 1}
    told = room.hear(1, m="change", id="c1", state="applying", step=8, **more)
    assert [type(event) for event in told] == [CompiledSeen, ChangeMoved]
    assert room.state.compiled == CompiledSeen(1010.0, 5.0, 4, 1) and room.state.ledger[0].compiled_s is None
    room.hear(1, **tick(compile_ns=9 * 10**9, graphs=6, recompiles=1))
    assert (room.state.ledger[0].compiled_s, room.state.ledger[0].graphs) == (4.0, 2)


def test_a_process_that_went_on_from_an_older_hand_off_is_told_of_in_its_own_line() -> None:
    room = Room()
    for change in ("r1", "r2"):
        room.state = fold_all([ChangeAsked(1005.0, change, {RESTART: ANEW})], room.state)
    said = "goes on from the hand-off after 3 epochs"
    room.state = fold_all([ChangeMoved(1006.0, "r1", "queued", note=said)], room.state)
    room.hello(1, 50)
    told = {"m": "session", "names": ["model"], "epochs": 9, "change": "r1", "restored": 2, "step": 80}
    assert not [event for event in room.hear(1, **told, passed=[]) if isinstance(event, ChangeMoved)]
    passed = ["hand-off 3 was not used: it is damaged: its tensors are not what was written"]
    for _ in range(2):  # again to whoever was away
        room.hear(1, **told, passed=passed)
    first, second = room.state.ledger
    assert (first.state, second.note) == ("queued", None)
    assert first.note == f"{said}; {passed[0]}; it goes on from epoch 2, step 80 instead"
    assert not [e for e in room.hear(1, **{**told, "restored": None}, passed=passed) if isinstance(e, ChangeMoved)]
    assert not [e for e in room.hear(1, **{**told, "change": None}, passed=passed) if isinstance(e, ChangeMoved)]

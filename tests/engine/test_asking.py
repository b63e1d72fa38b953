"""Asking for changes: merging with the queue, taking back, repeating, refusing; decided from the state alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import Story, beginning, knob, loader

from cockpit.engine import changes
from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.history.trials import words_of
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.events import ChangeAsked, ChangeMoved, LoadersSeen, ProbeConnected, Sampled, Stopping, TrainingEnded
from cockpit.model.missing import FAILED, ProbeMissed


def training(**in_force: object) -> State:
    knobs = (
        knob("num_workers", 0, in_force.get("num_workers", 0)),
        knob("prefetch_factor", None, in_force.get("prefetch_factor")),
        knob("pin_memory", False),
    )
    return fold_all([*beginning(), LoadersSeen(1001.0, (loader(knobs=knobs),))])


def carried_out(state: State, decision: changes.Decision) -> State:
    return fold_all(decision.events, state)


def test_asking_queues_and_tells_the_probe() -> None:
    decision = changes.ask(training(), 5.0, "c1", {"num_workers": 4})
    assert decision.events == (ChangeAsked(5.0, "c1", {"num_workers": 4}),)
    assert decision.messages == ({"m": "ask", "id": "c1", "knobs": {"num_workers": 4}, "now": False, "loader": None},)
    assert decision.result == {"id": "c1"}


def test_what_is_still_queued_is_asked_together() -> None:
    state = carried_out(training(), changes.ask(training(), 5.0, "c1", {"num_workers": 4, "pin_memory": True}))
    decision = changes.ask(state, 6.0, "c2", {"num_workers": 6})
    assert decision.events == (
        ChangeMoved(6.0, "c1", "dropped"),
        ChangeAsked(6.0, "c2", {"num_workers": 6, "pin_memory": True}),
    )
    assert [message["m"] for message in decision.messages] == ["drop", "ask"]
    assert [entry.id for entry in carried_out(state, decision).ledger] == ["c2"]
    other = changes.ask(state, 6.0, "c3", {"num_workers": 2}, loader="train.py:41")
    assert len(other.events) == 1, "another target is another change"


def test_now_takes_the_queue_along() -> None:
    state = carried_out(training(), changes.ask(training(), 5.0, "c1", {"num_workers": 4}))
    assert changes.ask(state, 6.0, "c2", {}, now=True).events[-1] == ChangeAsked(6.0, "c2", {"num_workers": 4}, True)
    sticky = carried_out(state, changes.ask(state, 6.0, "c2", {}, now=True))
    assert changes.ask(sticky, 7.0, "c3", {"pin_memory": True}).events[-1].now
    with pytest.raises(UsageError, match="nothing is queued to apply now"):
        changes.ask(training(), 6.0, "c2", {}, now=True)


def test_coming_back_to_what_is_in_force_empties_the_queue() -> None:
    state = training(num_workers=2)
    with pytest.raises(CockpitError, match="num_workers is already 2"):
        changes.ask(state, 5.0, "c1", {"num_workers": 2})
    asked = carried_out(state, changes.ask(state, 5.0, "c1", {"num_workers": 3}))
    back = changes.ask(asked, 6.0, "c2", {"num_workers": 2})
    assert back.result == {"id": None, "dropped": ["c1"]}
    assert carried_out(asked, back).ledger == ()
    assert changes.ask(state, 5.0, "c1", {"num_workers": "script"}).result == {"id": "c1"}
    with pytest.raises(CockpitError, match="already as the script has it"):
        changes.ask(training(), 5.0, "c1", {"num_workers": "script"})


def test_a_report_older_than_the_change_does_not_count_as_in_force() -> None:
    state = training(num_workers=0)
    story = Story()
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}, capacity=4), state)
    assert state.loaders[0].knobs[0].in_force == 0
    assert changes.ask(state, 9.0, "c2", {"num_workers": 0}).result == {"id": "c2"}


def test_applying_is_not_merged_nor_dropped() -> None:
    state = fold_all([ChangeAsked(5.0, "c1", {"num_workers": 4}), ChangeMoved(6.0, "c1", "applying")], training())
    assert [type(event) for event in changes.ask(state, 7.0, "c2", {"num_workers": 6}).events] == [ChangeAsked]
    with pytest.raises(CockpitError, match="no change is queued"):
        changes.drop(state, 7.0)
    with pytest.raises(CockpitError, match="a change is being applied"):
        changes.undo(state, 7.0, "c3")


def test_undo_and_redo_walk_like_an_editor() -> None:
    story = Story()
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), training())
    state = fold_all(story.landed("c2", {"pin_memory": False}, {"pin_memory": True}), state)
    undo = changes.undo(state, 7.0, "u1")
    assert undo.events == (ChangeAsked(7.0, "u1", {"pin_memory": False}, False, None, "undo"),)
    assert (undo.result["of"], undo.result["what"]) == ("c2", "pin_memory off→on")
    assert undo.result["asked"] == {"pin_memory": False}
    with pytest.raises(CockpitError, match="still queued: drop it first"):
        changes.undo(carried_out(state, undo), 8.0, "u2")

    def land(state: State, decision: changes.Decision) -> State:
        asked = decision.events[-1]
        assert isinstance(asked, ChangeAsked)
        before = {name: None for name in asked.knobs}
        moves = [
            ChangeMoved(9.0, asked.id, "applying"),
            ChangeMoved(9.0, asked.id, "settling", before=before, in_force=asked.knobs),
        ]
        return fold_all(moves, carried_out(state, decision))

    state = land(state, undo)
    state = land(state, changes.undo(state, 8.0, "u2"))
    assert state.ledger[-1].asked == {"num_workers": 0}
    with pytest.raises(CockpitError, match="nothing to undo"):
        changes.undo(state, 9.0, "u3")
    state = land(state, changes.redo(state, 9.0, "r1"))
    assert state.ledger[-1].asked == {"num_workers": 2}
    state = land(state, changes.redo(state, 9.0, "r2"))
    assert state.ledger[-1].asked == {"pin_memory": True}
    with pytest.raises(CockpitError, match="nothing to redo"):
        changes.redo(state, 9.0, "r3")
    assert changes.undo(state, 9.0, "u4").result["of"] == "r2"


def test_undo_of_what_was_unknown_before_means_the_scripts_value() -> None:
    state = fold_all(Story().landed("c1", {"num_workers": None}, {"num_workers": 2}), training())
    assert changes.undo(state, 7.0, "u1").events[0].knobs == {"num_workers": "script"}


def test_what_nobody_had_touched_reads_as_its_value_and_goes_back_to_the_script() -> None:
    """``compile on`` is what a script can have, and nothing that can be asked for."""
    story, kernels = Story(), (knob("autocast", "off"), knob("compile", "on"))
    state = fold_all([LoadersSeen(4.0, training().loaders, kernels)], training())
    before = {"autocast": "script", "compile": "script"}
    state = fold_all(story.landed("c1", before, {"autocast": "bf16", "compile": "off"}), state)
    change = {"autocast": ("off", "bf16"), "compile": ("on", "off")}
    assert state.ledger[0].change == change and words_of(state.ledger[0]) == "autocast off→bf16, compile on→off"
    assert status_of(state, 7.0)["ledger"][0]["change"] == {name: list(pair) for name, pair in change.items()}
    undo = changes.undo(state, 7.0, "u1")
    assert undo.events[0].knobs == before
    early = fold_all(story.landed("c1", before, {"autocast": "bf16", "compile": "off"}), training())
    assert early.ledger[0].change == {"autocast": ("script", "bf16"), "compile": ("script", "off")}
    told = fold_all([LoadersSeen(9.0, (), kernels)], early)
    assert told.ledger[0].change == change, "the rows came after it"
    assert changes.undo(told, 9.0, "u1").events[0].knobs == before
    landed = ChangeMoved(
        9.0, "u1", "settling", before={"autocast": "bf16"}, in_force={"autocast": "off", "compile": "on"}
    )
    state = fold_all([landed], carried_out(state, undo))
    assert changes.redo(state, 9.0, "r1").events[0].knobs == {"autocast": "bf16", "compile": "off"}
    state = fold_all([ChangeAsked(9.0, "c2", {"compile": "script"}), replace(landed, id="c2")], state)
    state = fold_all([ChangeAsked(9.0, "u2", {"compile": "off"}, origin="undo"), replace(landed, id="u2")], state)
    assert changes.redo(state, 9.0, "r2").events[0].knobs["compile"] == "script"


def test_scheduled_changes_are_left_alone() -> None:
    state = fold_all([ChangeAsked(5.0, "at0", {"num_workers": 4}, origin="schedule")], training())
    assert len(changes.ask(state, 6.0, "c1", {"num_workers": 2}).events) == 1
    with pytest.raises(CockpitError, match="no change is queued"):
        changes.drop(state, 6.0)


@pytest.mark.parametrize(
    ("event", "told"),
    [(TrainingEnded(9.0, 0), "train-3f has ended"), (Stopping(9.0, 99.0), "train-3f is stopping")],
)
def test_nothing_is_asked_of_a_run_that_ends(event: object, told: str) -> None:
    state = fold_all([event], training())  # type: ignore[list-item]
    for verb in (
        lambda: changes.ask(state, 9.0, "c", {"num_workers": 1}),
        lambda: changes.undo(state, 9.0, "c"),
    ):
        with pytest.raises(CockpitError, match=told):
            verb()


def test_before_anything_is_known_asking_is_queued() -> None:
    assert changes.ask(State(run="x"), 1.0, "c1", {"num_workers": 0}, loader="train.py:1").result == {"id": "c1"}
    with pytest.raises(CockpitError, match=r"no loader val.py:3 was seen: there are train.py:41"):
        changes.ask(training(), 1.0, "c1", {"num_workers": 1}, loader="val.py:3")


def test_what_only_a_boundary_can_bring_holds_nothing_up_that_can_land_now() -> None:
    """An endless epoch: the batch size would wait for ever, and the rest with it."""
    state = carried_out(training(), changes.ask(training(), 5.0, "c1", {"batch_size": 24}))
    decision = changes.ask(state, 6.0, "c2", {"compile": "default"}, now=True)
    assert decision.events == (ChangeAsked(6.0, "c2", {"compile": "default"}, True),), "what is queued stays"
    assert decision.result["later"] == {"id": "c1", "asked": {"batch_size": 24}}
    both = changes.ask(training(), 6.0, "c2", {"batch_size": 24, "num_workers": 2}, now=True)
    assert both.events == (
        ChangeAsked(6.0, "c2", {"num_workers": 2}, True), ChangeAsked(6.0, "c2-later", {"batch_size": 24})
    )  # fmt: skip
    assert [message["id"] for message in both.messages] == ["c2", "c2-later"]
    other = carried_out(training(), changes.ask(training(), 5.0, "c1", {"batch_size": 24, "pin_memory": True}))
    taken = changes.ask(other, 6.0, "c2", {}, now=True)
    assert [type(event) for event in taken.events] == [ChangeMoved, ChangeAsked, ChangeAsked]
    alone = changes.ask(training(), 6.0, "c2", {"batch_size": 24}, now=True)
    assert len(alone.events) == 1, "the training says itself why it has to wait"
    after = changes.ask(carried_out(training(), alone), 7.0, "c3", {"num_workers": 2})
    assert not after.events[-1].now, "nor does it make what is asked later come at once"


def test_workers_that_cannot_change_now_keep_what_goes_with_them() -> None:
    """An iterable dataset: its loader changes at the boundary, the model's knobs need not wait for it."""
    knobs = (knob("num_workers", 0, 0, can_now=False), knob("prefetch_factor", None), knob("pin_memory", False))
    state = fold_all([*beginning(), LoadersSeen(1001.0, (loader(knobs=knobs),))])
    decision = changes.ask(state, 6.0, "c1", {"num_workers": 2, "pin_memory": True, "threads": 2}, now=True)
    assert [(event.knobs, event.now) for event in decision.events] == [
        ({"threads": 2}, True), ({"num_workers": 2, "pin_memory": True}, False)
    ]  # fmt: skip


def test_the_answer_names_the_whole_change_and_when_it_comes() -> None:
    state = carried_out(training(), changes.ask(training(), 5.0, "c1", {"num_workers": 2}))
    assert changes.ask(state, 6.0, "c2", {"threads": 2}, now=True).result == {
        "id": "c2", "asked": {"num_workers": 2, "threads": 2}, "now": True
    }  # fmt: skip
    soon = carried_out(training(), changes.ask(training(), 5.0, "c1", {"num_workers": 2}, now=True))
    assert changes.ask(soon, 6.0, "c2", {"num_workers": 3}).result["now"] is True


def test_a_training_that_makes_its_batches_itself_is_promised_no_boundary() -> None:
    early, late = (fold_all([Sampled(1002.0, 0.5, step=step, steps=1)], fold_all(beginning())) for step in (5, 500))
    assert changes.ask(early, 6.0, "c1", {"num_workers": 2}).result == {"id": "c1"}, "a loader may still come"
    with pytest.raises(CockpitError, match="no DataLoader was seen"):
        changes.ask(late, 6.0, "c1", {"num_workers": 2, "threads": 1})
    assert changes.ask(late, 6.0, "c1", {"threads": 1}, now=True).result == {"id": "c1"}
    assert "no DataLoader was seen" in status_of(late, 7.0)["knobs"]["pin_memory"]["reason"]
    assert status_of(early, 7.0)["knobs"]["pin_memory"]["reason"] is None


def test_what_waited_for_a_loader_that_never_came_is_refused_and_holds_up_nothing() -> None:
    early, late = (fold_all([Sampled(1002.0, 0.5, step=step, steps=1)], fold_all(beginning())) for step in (5, 500))
    asked = carried_out(early, changes.ask(early, 6.0, "c1", {"num_workers": 2, "autocast": "bf16"}))
    assert changes.give_up(asked, 7.0) is None, "a loader may still come"
    at_once = changes.ask(asked, 7.0, "c2", {"threads": 2}, now=True)
    assert [(event.knobs, event.now) for event in at_once.events[1:]] == [
        ({"autocast": "bf16", "threads": 2}, True), ({"num_workers": 2}, False)
    ], "what needs no loader does not wait for one"  # fmt: skip
    known = fold_all([Sampled(1003.0, 0.5, step=500, steps=1)], asked)
    over = changes.give_up(known, 8.0)
    assert over is not None and [message["m"] for message in over.messages] == ["drop", "ask"]
    after = carried_out(known, over)
    assert [(entry.state, entry.asked) for entry in after.ledger] == [
        ("refused", {"num_workers": 2, "autocast": "bf16"}), ("queued", {"autocast": "bf16"})
    ]  # fmt: skip
    assert "no DataLoader was seen" in (after.ledger[0].reason or "")
    assert changes.give_up(after, 9.0) is None
    only = carried_out(early, changes.ask(early, 6.0, "c1", {"num_workers": 2}, now=True))
    gone = changes.give_up(fold_all([Sampled(1003.0, 0.5, step=500, steps=1)], only), 8.0)
    assert gone is not None and [message["m"] for message in gone.messages] == ["drop"]
    back = changes.ask(late, 6.0, "c1", {"num_workers": "script"})
    assert changes.give_up(carried_out(late, back), 7.0) is None, "back to what the script has is in vain nowhere"


def test_a_probe_that_failed_at_its_start_is_final_and_nothing_is_queued_for_it() -> None:
    silent = [event for event in beginning() if not isinstance(event, ProbeConnected)]
    failed = fold_all([*silent, ProbeMissed(1002.0, f"{FAILED}: ImportError: x")])
    for knobs in ({"num_workers": 2}, {"autocast": "bf16"}):
        with pytest.raises(CockpitError, match="the probe failed while it was loaded: ImportError: x"):
            changes.ask(failed, 6.0, "c1", knobs, now=True)
    assert "ImportError" in status_of(failed, 7.0)["knobs"]["pin_memory"]["reason"]
    waiting = fold_all([*silent, ProbeMissed(1002.0, "torch has not been imported yet")])
    assert changes.ask(waiting, 6.0, "c1", {"num_workers": 2}).result == {"id": "c1"}

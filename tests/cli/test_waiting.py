"""``--wait``: every id that was answered comes to an end, also one that left the ledger before it was seen there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.events import BEGAN_S, Story, beginning, knob, loader

from cockpit.cli import waiting
from cockpit.cli.answers import when_words
from cockpit.cli.waiting import _all_over, _gone, ids_of
from cockpit.history.fold import fold_all
from cockpit.history.state import Entry, State
from cockpit.model.events import LoadersSeen


def test_what_was_withdrawn_before_it_was_seen_once_is_over() -> None:
    """Two clients at once: the first change is taken into the second within the same moment."""
    last: dict[str | None, dict[str, Any]] = {"c1": _gone("c1", "not heard of any more")}
    assert _all_over(fold_all(beginning()), ["c1"], last, {})
    assert (last["c1"]["state"], last["c1"]["outcome"]) == ("dropped", None) and "withdrawn" in last["c1"]["reason"]


def test_what_waits_is_not_over() -> None:
    last: dict[str | None, dict[str, Any]] = {"c1": _gone("c1", "not heard of any more")}
    state = fold_all([*beginning(), Story().asked("c1", {"num_workers": 2})])
    assert not _all_over(state, ["c1"], last, {}) and last["c1"]["state"] == "queued"


def test_what_is_in_force_already_is_kept_without_a_change() -> None:
    """Asked for what is there while something else was queued: the engine only empties the queue, and has no id."""
    last: dict[str | None, dict[str, Any]] = {}
    assert _all_over(fold_all(beginning()), [None], last, {})
    assert last[None]["outcome"] == "kept" and "in force already" in last[None]["reason"]


def test_the_part_that_waits_for_a_boundary_is_waited_for_where_it_was_asked_for() -> None:
    answer = {"id": "c1", "later": {"id": "c1-later", "asked": {"batch_size": 8}}}
    assert ids_of(answer, {"knobs": {"threads": 2, "batch_size": 8}}) == ["c1", "c1-later"]
    assert ids_of(answer, {"knobs": {"threads": 2}}) == ["c1"] == ids_of({"id": "c1"}, {})


@pytest.mark.parametrize(("asked", "outcome"), [(4, "kept"), ("script", "kept"), (2, None)])
def test_what_left_the_ledger_is_kept_where_it_is_in_force_without_it(asked: object, outcome: str | None) -> None:
    """Somebody's change back comes first: then there is nothing left to do, and nothing has failed."""
    last: dict[str | None, dict[str, Any]] = {"c1": _gone("c1", "not heard of any more")}
    entries: dict[str, Entry] = {}
    before = [*beginning(), LoadersSeen(BEGAN_S, (loader(knobs=(knob("num_workers", 4),)),))]
    assert not _all_over(fold_all([*before, Story().asked("c1", {"num_workers": asked})]), ["c1"], last, entries)
    assert _all_over(fold_all(before), ["c1"], last, entries)
    assert (last["c1"]["state"], last["c1"]["outcome"]) == ("dropped", outcome)


def test_who_waits_for_a_boundary_that_is_not_in_sight_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = (loader(steps_per_epoch=None, knobs=(knob("num_workers", 0),)),)
    before = [*beginning(), LoadersSeen(BEGAN_S, endless)]
    queued = [*before, Story().asked("c1", {"num_workers": 2})]
    states = [fold_all(events) for events in (before, queued, queued, before)]

    class Link:
        async def command(self, verb: str, **args: Any) -> dict[str, Any]:
            return {"id": "c1"}

    class Heard:
        def __init__(self, run: object) -> None:
            self.link = Link()

        async def states(self) -> AsyncIterator[State]:
            for state in states:
                yield state

        async def close(self) -> None: ...

    monkeypatch.setattr(waiting, "Following", Heard)
    assert waiting.wait_for(None, [("set", {"knobs": {"num_workers": 2}})]) == 1  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said.count("no epoch's end in sight: --now does not wait for one") == 1, said


def test_a_restart_waits_for_a_boundary_of_its_own() -> None:
    state = fold_all([*beginning(), LoadersSeen(BEGAN_S, (loader(steps_per_epoch=None),))])
    for asked, told in (({"num_workers": 2}, True), ({"env MINE": "7"}, False)):
        entry = fold_all([Story().asked("c1", asked)], state).ledger[0]
        assert (when_words(state, [entry]) is not None) == told

"""Frozen data through real JSON and back: every event, every State, and neighbours that differ by a field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from support.events import BEGAN_S, Story, beginning

from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.model.events import EVENTS, ChangeAsked, Event, KnobReport, OutputSeen, Sampled
from cockpit.probe.row import Row
from cockpit.wire.codec import event_from_plain, event_to_plain, from_plain, to_plain

finite = some.floats(allow_nan=False, allow_infinity=False)
some.register_type_strategy(float, finite)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def plainly(value: Any) -> Any:
    """Mappings of Hypothesis may be other kinds; ours are dicts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{f.name: plainly(getattr(value, f.name)) for f in dataclasses.fields(value)}
        )
    if isinstance(value, tuple):
        return tuple(map(plainly, value))
    return dict(value) if hasattr(value, "keys") else value


def test_what_the_probe_tells_of_a_knob_is_what_the_model_knows_of_one() -> None:
    """Two classes, since what trains does not import all events: field by field the same, and the same defaults."""
    known = {field.name: field.default for field in dataclasses.fields(KnobReport)}
    assert list(Row._fields) == list(known)
    assert Row._field_defaults == {name: value for name, value in known.items() if value is not dataclasses.MISSING}
    told = Row("threads", 4, 2, can_now=False, reason="why", note="note", asked=8)
    assert dataclasses.asdict(from_plain(KnobReport, through_json(told._asdict()))) == told._asdict()


@pytest.mark.parametrize("kind", EVENTS, ids=[kind.__name__ for kind in EVENTS])
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=some.data())
def test_every_event_comes_back_as_it_was(kind: type, data: some.DataObject) -> None:
    event: Event = plainly(data.draw(some.from_type(kind)))
    assert event_from_plain(through_json(event_to_plain(event))) == event


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(some.from_type(State))
def test_any_state_comes_back_as_it_was(made: State) -> None:
    state = plainly(made)
    assert from_plain(State, through_json(to_plain(state))) == state


def test_the_state_of_a_real_story_comes_back_as_it_was() -> None:
    story = Story()
    events = [
        *beginning(),
        *story.blocks([50.0] + [100.0] * 9),
        *story.landed("c1", {"num_workers": 0}, {"num_workers": 2}),
    ]
    events += [
        *story.blocks([200.0] * 4),
        Sampled(story.at_s, 0.5, step=7, queue=(1, 4), cores_busy=(0.5, 1.0)),
    ]
    state = fold_all(events)
    again = from_plain(State, through_json(to_plain(state)))
    assert again == state and type(again.ledger[0].change["num_workers"]) is tuple  # type: ignore[index]


def test_fields_that_a_neighbour_does_not_know_are_ignored_and_missing_ones_have_their_default() -> None:
    newer = {"e": "OutputSeen", "at_s": 1.0, "line": "x", "bytes": 3, "colour": "red"}
    assert event_from_plain(newer) == OutputSeen(1.0, "x", 3)
    older = {"e": "ChangeAsked", "at_s": 1.0, "id": "c1", "knobs": {"num_workers": 2}}
    assert event_from_plain(older) == ChangeAsked(1.0, "c1", {"num_workers": 2})


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"e": "NotYetInvented", "at_s": 1.0},
        {"e": "OutputSeen"},
        {"e": 7},
        {"e": "ChangeAsked", "at_s": 1.0, "id": "c", "knobs": [1]},
        {"e": "LoadersSeen", "at_s": 1.0, "loaders": [3]},
        {"e": "LoadersSeen", "at_s": 1.0, "loaders": 3},
    ],
    ids=str,
)
def test_a_damaged_line_is_no_event(line: dict[str, Any]) -> None:
    assert event_from_plain(line) is None


def test_figures_at_their_default_take_no_room() -> None:
    assert event_to_plain(Sampled(BEGAN_S, 0.5)) == {"e": "Sampled", "at_s": BEGAN_S, "span_s": 0.5}
    assert to_plain(State()) == {}

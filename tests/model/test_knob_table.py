"""The table of knobs is complete, and every wrong word about one is answered in one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cockpit.model.errors import UsageError
from cockpit.model.knobs import (
    KNOBS,
    LOADER_KNOBS,
    SCRIPT,
    Knob,
    check_value,
    knob_named,
    nearest,
    parse_value,
    show_value,
    takes,
)

ids = [knob.name for knob in KNOBS]


def missing(knob: Knob) -> list[str]:
    """What a row of the table lacks, as sentences."""
    lacks = []
    if not knob.help.strip() or "\n" in knob.help or len(knob.help) > 70:
        lacks.append(f"{knob.name}: its help must be one line of at most 70 characters")
    if not knob.label or len(knob.label) > 12:
        lacks.append(f"{knob.name}: its label must fit the panel (1 to 12 characters)")
    if knob.kind not in ("int", "switch", "choice"):
        lacks.append(f"{knob.name}: kind {knob.kind!r} is none that the screen can turn")
    if knob.kind == "choice" and len(knob.choices) < 2:
        lacks.append(f"{knob.name}: a choice needs at least two values")
    if knob.kind == "int" and not (0 <= knob.low < knob.high and knob.step >= 1):
        lacks.append(f"{knob.name}: low, high and step do not make a range")
    if knob.room not in ("loader", "batch", "kernel"):
        lacks.append(f"{knob.name}: it belongs to no room, so nobody applies it")
    if knob.grows not in ("step", "double"):
        lacks.append(f"{knob.name}: no key press knows how to grow by {knob.grows!r}")
    return lacks


@pytest.mark.parametrize("knob", KNOBS, ids=ids)
def test_every_knob_has_all_its_pieces(knob: Knob) -> None:
    assert missing(knob) == []


def test_names_are_unique_and_the_loader_group_is_whole() -> None:
    assert len(set(ids)) == len(ids)
    expected = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")
    assert expected == LOADER_KNOBS


def values_of(knob: Knob) -> list[object]:
    return {"int": [knob.low, knob.high], "switch": [True, False], "choice": list(knob.choices)}[knob.kind]


@pytest.mark.parametrize("knob", KNOBS, ids=ids)
def test_every_value_reads_back_as_it_is_shown(knob: Knob) -> None:
    for value in [*values_of(knob), SCRIPT]:
        assert parse_value(knob.name, show_value(value)) == value
        assert check_value(knob.name, value) == value


WRONG = [
    ("num_workers", "many"),
    ("num_workers", "-1"),
    ("num_workers", "1025"),
    ("num_workers", "2.5"),
    ("num_workers", "٣"),
    ("num_workers", "99999999999999999999"),
    ("num_workers", ""),
    ("prefetch_factor", "0"),
    ("batch_size", "0"),
    ("batch_size", "1000000"),
    ("pin_memory", "2"),
    ("pin_memory", "perhaps"),
]


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_a_wrong_value_is_answered_in_one_sentence(name: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_value(name, text)
    sentence = str(caught.value)
    assert name in sentence and takes(knob_named(name)) in sentence and "\n" not in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_workers", True), ("num_workers", 2.0), ("pin_memory", 1), ("pin_memory", None), ("in_order", [])],
)
def test_a_value_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError):
        check_value(name, value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("num_worker", "num_workers"), ("prefetch", "prefetch_factor"), ("pin", "pin_memory")],
)
def test_the_nearest_knob_is_named(typed: str, meant: str) -> None:
    assert nearest(typed) == meant
    with pytest.raises(UsageError, match=meant):
        knob_named(typed)


def test_a_name_like_nothing_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"known: num_workers, .*in_order"):
        knob_named("zzz")


def test_what_is_not_known_is_shown_as_a_dash_and_never_as_zero() -> None:
    assert show_value(None) == "–" and show_value(0) == "0" and show_value(False) == "off"


@settings(deadline=None)
@given(some.sampled_from(ids), some.text(max_size=12))
def test_any_text_is_a_value_or_one_sentence(name: str, text: str) -> None:
    try:
        value = parse_value(name, text)
    except UsageError as error:
        assert "\n" not in str(error).replace(text.strip().lower(), "")
    else:
        assert check_value(name, value) == value

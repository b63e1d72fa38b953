"""The one line that is said of a failure: whole where it is short, else its first sentence, and never half of one."""

from __future__ import annotations

import pytest

from cockpit.probe.outcomes import LONG, why

MORE = " " + "and so it goes on " * 9


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("it broke", "it broke"),
        ("stack(): functions with out=... arguments do not take gradients. Use detach()." + MORE,
         "stack(): functions with out=... arguments do not take gradients"),
        ("no such layout, e.g. strided. Convert it first." + MORE, "no such layout, e.g. strided"),
        ("expected 1.5 of them. Got 2." + MORE, "expected 1.5 of them"),
    ],
)  # fmt: skip
def test_a_reason_ends_where_its_sentence_does(message: str, told: str) -> None:
    assert why(RuntimeError(message)) == "RuntimeError: " + told


def test_a_sentence_that_is_too_long_is_seen_to_be_cut() -> None:
    said = why(RuntimeError("out=... " + MORE))
    assert len(said) == LONG and said.endswith("…") and said.startswith("RuntimeError: out=... ")

"""One of a thing is not "1 things": on the screen, and wherever else something is counted in words."""

from __future__ import annotations

import random
import re
import typing
from pathlib import Path
from typing import Any

import pytest
from tui.any_state import Grower

import cockpit
from cockpit.model.counts import counted, noun
from cockpit.tui.frame import frame
from cockpit.tui.rows import text_of
from cockpit.tui.view import View

NOUNS = (
    "batches", "cores", "devices", "epochs", "files", "graphs", "hand-offs", "lines", "messages",
    "parameters", "processes", "ranks", "recompiles", "samples", "steps", "tries", "windows", "workers",
)  # fmt: skip
WRONG = re.compile(rf"(?<![\d.,:/≈+-])1 (?:more |frozen )?(?:{'|'.join(NOUNS)})\b(?!/s)")


class Ones(Grower):
    """One of everything, whatever it is."""

    def number(self) -> float:
        return 1.0

    def text(self) -> str:
        return "x"

    def _field(self, name: str, hint: Any) -> Any:
        return 1 if name == "steps" and hint is int else super()._field(name, hint)

    def _type(self, hint: Any) -> Any:
        made = super()._type(hint)
        if typing.get_origin(hint) is tuple and ... in typing.get_args(hint):
            return made[:1]
        return 1 if isinstance(made, int) and not isinstance(made, bool) else made


@pytest.mark.parametrize("seed", range(40))
def test_one_of_a_thing_is_one_thing(seed: int) -> None:
    state = Ones(seed).state()
    told = text_of(frame(View(state, 2.0), *random.Random(seed).choice([(80, 24), (120, 40), (200, 60)])))
    assert not WRONG.search(told), WRONG.findall(told)


def test_the_noun_follows_its_number() -> None:
    assert [counted(number, "batch", "batches") for number in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]
    assert (noun(None, "step"), noun(1, "step")) == ("steps", "step")


COUNTED = re.compile(r"(?:\{(?:(?!:\.[1-9]f)[^{}])*\}|%[ds]) (?:more |frozen )?(\w+(?:-\w+)?)\b(?!/s)")
"""Whole numbers: it is 1.0 cores."""
ALWAYS_SEVERAL = (
    "of {entry.settle_steps} steps",
    "/{POLICY.windows_before} windows",
    "has %d ranks, and a hand-off is of one process",
    "%d samples in an epoch instead of",  # as many again for each worker more
    "%d samples in batches of %d leave one",
    "the loop saw %d samples, and there are",  # more than there are
    "the loop saw %d of %d samples",  # fewer than there are
    '1: "the update of 1 step is"',
)


def test_nothing_is_counted_in_words_without_asking_what_one_is_called() -> None:
    """Each place that puts a number before one of these nouns."""
    found = [
        (path.name, line.strip())
        for path in Path(cockpit.__file__).parent.rglob("*.py")
        for line in path.read_text().splitlines()
        for word in COUNTED.findall(line)
        if word in NOUNS and not any(part in line for part in ALWAYS_SEVERAL)
    ]
    assert found == [], "\n".join(map(str, found))

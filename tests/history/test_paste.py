"""The setup in force becomes lines to paste that name the script's own call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import beginning, knob, loader

from cockpit.history.fold import fold_all
from cockpit.history.paste import lines_to_paste
from cockpit.model.errors import CockpitError
from cockpit.model.events import LoadersSeen


def test_the_line_names_every_training_loader_and_no_other() -> None:
    tuned = (knob("num_workers", 0, 2), knob("pin_memory", False))
    first, other = loader("a.py:7", "train", tuned), loader("a.py:9", "other")
    state = fold_all([*beginning(), LoadersSeen(1002.0, (first, other))])
    assert lines_to_paste(state).lines == ("DataLoader(..., num_workers=2)  # a.py:7",)
    both = replace(state, loaders=(first, replace(first, id="a.py:9")))
    assert lines_to_paste(both).lines == ("DataLoader(..., num_workers=2)  # a.py:7 and a.py:9",)


def test_an_untouched_run_has_nothing_to_paste() -> None:
    state = fold_all([*beginning(), LoadersSeen(1002.0, (loader(),))])
    with pytest.raises(CockpitError, match="nothing to export"):
        lines_to_paste(state)

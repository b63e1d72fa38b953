"""The setup in force becomes lines to paste that name the script's own call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import beginning, knob, loader

from cockpit.model.errors import CockpitError
from cockpit.model.events import LoadersSeen
from cockpit.session.fold import fold_all
from cockpit.session.paste import lines_to_paste


def test_the_line_names_every_training_loader_and_no_other() -> None:
    tuned = (knob("num_workers", 0, 2), knob("pin_memory", False))
    loaders = [loader(name, role, tuned) for name, role in (("a.py:7", "train"), ("a.py:9", "other"))]
    state = fold_all([*beginning(), LoadersSeen(1002.0, tuple(loaders))])
    assert lines_to_paste(state).lines == ("DataLoader(..., num_workers=2)  # a.py:7",)
    both = replace(state, loaders=(loaders[0], replace(loaders[1], role="train")))
    assert "# a.py:7 and a.py:9" in lines_to_paste(both).lines[0]


def test_an_untouched_run_has_nothing_to_paste() -> None:
    state = fold_all([*beginning(), LoadersSeen(1002.0, (loader(),))])
    with pytest.raises(CockpitError, match="nothing to export"):
        lines_to_paste(state)

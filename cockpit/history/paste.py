"""The setup in force as lines to paste into the script, with the place of its own call. For the screen's key. Pure."""

from __future__ import annotations

from cockpit.config.export import Export, export

from .knobs import training_loaders
from .save import saved_of
from .state import State


def lines_to_paste(state: State) -> Export:
    """What differs from the script now, as Python; raises CockpitError where nothing does."""
    return export(saved_of(state).wishes, "python", [loader.id for loader in training_loaders(state)])

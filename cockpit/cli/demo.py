"""``cockpit demo``: the training that lies beside this package, started like anybody's own script."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import cockpit
from cockpit.model.errors import StartError, UsageError

from .launch_words import OPTIONS
from .run import start
from .verbs import Verb
from .words import Words

__all__ = ["OPTIONS", "call"]


def call(verb: Verb, words: Words) -> int:
    """Start it; words after ``--`` go to its script."""
    del verb
    if words.rest and not words.command:
        raise UsageError(f"demo takes options only, not {words.rest[0]!r}; words for its script go after --")
    if importlib.util.find_spec("PIL") is None:
        raise StartError("the demo decodes real pictures and needs Pillow: pip install 'training-cockpit[demo]'")
    # this very interpreter: the one that was just seen to have Pillow, not that of another active environment
    return start(words, (sys.executable, str(script()), *words.rest), command=True)


def script(package: Path | None = None) -> Path:
    """The demo's training: in the wheel it lies inside the package, in a checkout beside it."""
    package = package or Path(cockpit.__file__).parent
    for folder in (package / "demo", package.parent / "demo"):
        if (folder / "train.py").is_file():
            return folder / "train.py"
    raise StartError(f"the demo is missing beside {package}: install training-cockpit again")

"""``cockpit attach``: show a training again with its history, over or not. No terminal: as ``run --headless``.

Only ``run`` passes the training's own exit status on: here 1, 2 and 3 are words of the cockpit, as in every other verb.
"""

from __future__ import annotations

import sys

from cockpit.model.errors import CockpitError

from . import headless
from .run import has_terminal, show
from .runs import STATE_DIR, find, has_ended, name_in, revive_to_show
from .screen_words import SCREEN_OPTIONS, look_of
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--headless", "no screen: progress to stderr, the report to stdout"),
    Option("--json", "no screen: stdout holds the report as one JSON object"),
    Option("--quiet", "no progress lines"),
    *SCREEN_OPTIONS,
    STATE_DIR,
)


def call(verb: Verb, words: Words) -> int:
    """Stay with the run; 0, however the training ends. Raises CockpitError where nothing is left to follow."""
    look, run = look_of(words), find(name_in(verb, words), words)
    asked = words.has("--headless") or words.has("--json")
    if not asked and has_terminal():
        revive_to_show(run)
        show(run, look)
        return 0
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended: cockpit report {run.name}")
    if not asked and not words.has("--quiet"):
        print("cockpit: no terminal to draw a screen on here: progress in plain lines", file=sys.stderr)
    headless.watch(run, quiet=words.has("--quiet"), as_json=words.has("--json"))
    return 0

"""``cockpit attach``: show a training again with its history, over or not. No terminal: as ``run --headless``."""

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
    """Stay with the run; its exit status, 0 after detaching or where it was over already.

    Raises CockpitError where nothing is left to follow.
    """
    look, run = look_of(words), find(name_in(verb, words), words)
    asked = words.has("--headless") or words.has("--json")
    if not asked and has_terminal():
        over = has_ended(run)
        revive_to_show(run)
        status = show(run, look)
        # only who has seen a training end is told how by the exit status: looking at an old one is fine
        return 0 if over else status
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended: cockpit report {run.name}")
    if not asked and not words.has("--quiet"):
        print("cockpit: no terminal to draw a screen on here: progress in plain lines", file=sys.stderr)
    return headless.watch(run, quiet=words.has("--quiet"), as_json=words.has("--json"))

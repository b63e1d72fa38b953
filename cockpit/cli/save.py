"""``cockpit save``: write the tuned setup of a run, while it runs or after its end."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from cockpit.history import memory
from cockpit.history.report import again_words, better_words
from cockpit.history.save import DEFAULT_FILE, save
from cockpit.model.errors import CockpitError

from .runs import STATE_DIR, ask, find, has_ended, name_in, state_of
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--to", f"the file (default {DEFAULT_FILE})", ("FILE",)),
    Option("--force", "overwrite a file that cockpit did not write"),
    STATE_DIR,
)


def call(verb: Verb, words: Words) -> int:
    """Write it and print its path; 0."""
    run = find(name_in(verb, words), words)
    state = state_of(run)
    path = Path(words.one("--to") or DEFAULT_FILE)
    saved = save(state, path, force=words.has("--force"))
    if not has_ended(run):
        # the file is written: an engine that just left cannot make that untrue
        with suppress(CockpitError):
            ask(run, "saved", path=str(path.resolve()))
    print(path)
    print(f"cockpit: {' '.join(saved)}; use it: {again_words(state, str(path))}", file=sys.stderr)
    if grows := memory.words(state):
        print(f"cockpit: under this setup {grows}", file=sys.stderr)
    if better := better_words(state):
        print(f"cockpit: {better}", file=sys.stderr)
    return 0

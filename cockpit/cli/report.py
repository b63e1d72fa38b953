"""``cockpit report``: what was tried, what it gave, what held it back. From the journal alone, or the living run."""

from __future__ import annotations

import json

from cockpit.history.report import report_of, text_of

from .runs import STATE_DIR, find, name_in, recorded_state
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--json", "one JSON object: the status, with a summary"), STATE_DIR)


def call(verb: Verb, words: Words) -> int:
    """Print it; 0."""
    run = find(name_in(verb, words), words)
    state = recorded_state(run)
    if words.has("--json"):
        print(json.dumps(report_of(state, state.at_s)))
    else:
        print("\n".join(text_of(state, state.at_s)))
    return 0

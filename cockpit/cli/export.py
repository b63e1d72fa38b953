"""``cockpit export``: a saved setup in other tools' words, for a script that is to run without cockpit.

Lines to paste go to stdout, what they cannot say to stderr. Reads the file alone and starts nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cockpit.config.export import FORMS, export
from cockpit.config.setup import read_setup
from cockpit.model.errors import CockpitError, StartError, UsageError

from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--to", f"in whose words: {' or '.join(FORMS)}", ("FORM",)),)


def call(verb: Verb, words: Words) -> int:
    """Print the lines; 0."""
    if len(words.rest) != 1:
        raise UsageError(f"{verb.name} takes one FILE, as cockpit save writes it, not {len(words.rest)}")
    form = words.one("--to")
    if form is None:
        raise UsageError(f"{verb.name} needs --to {' or --to '.join(FORMS)}")
    try:
        saved = read_setup(Path(words.rest[0]))
    except StartError as error:
        # the same sentence; but nothing was to be started here, so it is no failed start
        raise CockpitError(str(error)) from error
    found = export(saved.wishes, form)
    print("\n".join(found.lines))
    for note in (*saved.warnings, *found.notes):
        print(f"cockpit: {note}", file=sys.stderr)
    return 0

"""``cockpit doctor``: what this machine can and cannot show, and why. Looks only; 1 where a run could not start."""

from __future__ import annotations

import json
import os

from cockpit.model.errors import UsageError
from cockpit.model.names import SCHEMA

from .checks import FINE, LIMITED, MISSING, Check, home_words, judge
from .runs import STATE_DIR, state_dir
from .surroundings import gather
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--json", "one JSON object"), STATE_DIR)

MARKS = {FINE: "ok", LIMITED: "--", MISSING: "XX"}


def call(verb: Verb, words: Words) -> int:
    """Print a line a check; 0, or 1 where something that every run needs is missing."""
    if words.rest:
        raise UsageError(f"{verb.name} takes no {words.rest[0]}")
    found = judge(gather(os.environ, state_dir(words)))
    missing = [check.name for check in found if check.state == MISSING]
    if words.has("--json"):
        checks = [{"name": one.name, "state": one.state, "found": one.found, "says": one.says} for one in found]
        print(json.dumps({"schema": SCHEMA, "ok": not missing, "checks": checks}))
    else:
        print("\n".join(line(one, os.environ.get("HOME")) for one in found))
        print(f"\ncannot run: {', '.join(missing)}" if missing else "\na training can be run and watched here")
    return 1 if missing else 0


def line(check: Check, home: str | None) -> str:
    """``-- gpu            none: no NVIDIA driver library …``"""
    said = ": ".join(part for part in (check.found or "none", check.says) if part)
    return home_words(f"{MARKS[check.state]}  {check.name:<14} {said}", home)

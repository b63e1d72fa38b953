"""``cockpit ls``: the runs on this machine, newest first. Reads journals and processes; starts and asks nothing."""

from __future__ import annotations

import json
import time
from typing import Any

from cockpit.session.journal import read_state
from cockpit.session.report import duration, rate_words
from cockpit.session.state import State
from cockpit.session.status import live_rate

from .runs import STATE_DIR, Listed, all_runs
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--json", "a JSON array, one object a run"), STATE_DIR)

ALIVE = ("running", "stopping")
COLUMNS = (("run", 24), ("state", 9), ("epoch", 6), ("samples/s", 10), ("age", 13))


def call(verb: Verb, words: Words) -> int:
    """Print one line a run; 0, also where there is none."""
    del verb
    now_s = time.time()
    rows = [row(found, now_s) for found in all_runs(words)]
    if words.has("--json"):
        print(json.dumps(rows))
        return 0
    print("  ".join(title.ljust(width) for title, width in COLUMNS).rstrip() + "  script")
    for found in rows:
        age = duration(found["age_s"]) if found["age_s"] is not None else None
        cells = (found["run"], found["state"], found["epoch"], rate_words(found["samples_per_s"]), age)
        line = "  ".join(
            ("–" if cell is None else str(cell)).ljust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)
        )
        print(f"{line}  {found['script']}")
    return 0


def row(found: Listed, now_s: float) -> dict[str, Any]:
    """``age_s``: since it was started. ``samples_per_s`` only of what runs: an ended run has no speed.

    Files and processes say whether it lives; the journal says the rest, at most a second behind.
    """
    state = read_state(found.run.data) or State()
    phase = state.phase if found.state == "running" and state.phase in ALIVE else found.state
    return {
        "run": found.run.name,
        "state": phase,
        "epoch": state.epoch,
        "step": state.step,
        "samples_per_s": live_rate(state) if phase in ALIVE else None,
        "age_s": max(0.0, now_s - found.started_s) if found.started_s else None,
        "exit_status": found.exit_status,
        "pid": found.pid,
        "script": found.script,
    }

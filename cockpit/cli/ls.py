"""``cockpit ls``: the runs on this machine, newest first. Reads journals and processes; starts and asks nothing."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from cockpit.history.journal import read_state
from cockpit.history.measure import live_rate
from cockpit.history.report import duration, rate_words
from cockpit.history.state import State

from .runs import STATE_DIR, Listed, all_runs
from .verbs import Verb
from .words import Option, Words

SHOWN = 20
"""Ended runs listed without --all: to tell their epoch a journal is read for each."""
OPTIONS: tuple[Option, ...] = (
    Option("--all", f"also runs that ended before the newest {SHOWN}"),
    Option("--json", "a JSON array, one object a run"),
    STATE_DIR,
)

ALIVE = ("running", "stopping")
COLUMNS = (("run", 24), ("state", 9), ("epoch", 6), ("samples/s", 10), ("age", 13))


def call(verb: Verb, words: Words) -> int:
    """Print one line a run; 0, also where there is none."""
    del verb
    now_s = time.time()
    found = all_runs(words)
    over = [one for one in found if one.state not in ("starting", "running")]
    hidden = {id(one) for one in over[SHOWN:]} if not words.has("--all") else set()
    rows = [row(one, now_s) for one in found if id(one) not in hidden]
    if words.has("--json"):
        print(json.dumps(rows))
        return 0
    print("  ".join(title.ljust(width) for title, width in COLUMNS).rstrip() + "  script")
    for told in rows:
        age = duration(told["age_s"]) if told["age_s"] is not None else None
        cells = (told["run"], told["state"], told["epoch"], rate_words(told["samples_per_s"]), age)
        line = "  ".join(
            ("–" if cell is None else str(cell)).ljust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)
        )
        print(f"{line}  {told['script']}")
    if hidden:
        print(f"cockpit: {len(hidden)} older runs are not listed: cockpit ls --all", file=sys.stderr)
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

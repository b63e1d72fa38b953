"""``cockpit stop``: a soft stop. The training alone is told, and may save; after the grace the whole run ends."""

from __future__ import annotations

import sys
import time

from cockpit.engine.start import GRACE_S
from cockpit.model.errors import CockpitError

from .runs import STATE_DIR, Run, ask, find, has_ended, name_in, recorded_state
from .verbs import Verb
from .words import Option, Words, seconds

OPTIONS: tuple[Option, ...] = (
    Option("--force", "shorten the grace: end it now"),
    Option("--grace", "seconds it has to end by itself", ("SECONDS",)),
    Option("--no-wait", "return at once, do not wait for the end"),
    STATE_DIR,
)

LOOK_S = 0.1
BEYOND_S = 30.0
"""How long after the grace we wait for the last process: it is being ended by force by then."""


def call(verb: Verb, words: Words) -> int:
    """Ask and, unless told not to, wait until it has ended; 0 then, 1 if it did not."""
    run = find(name_in(verb, words), words)
    if has_ended(run):
        raise CockpitError(f"{run.name} has ended already")
    grace = words.one("--grace")
    grace_s = seconds(grace, "--grace") if grace is not None else None
    result = ask(run, "stop", force=words.has("--force"), grace_s=grace_s)
    told = result.get("grace_s", run.facts().get("grace_s", GRACE_S) if grace_s is None else grace_s)
    grace_s = float(told)
    how = "being ended" if words.has("--force") else f"asked to end; it may save for up to {grace_s:g} s"
    print(f"cockpit: {run.name} is {how}", file=sys.stderr)
    if words.has("--no-wait"):
        return 0
    return _wait(run, grace_s + BEYOND_S)


def _wait(run: Run, longest_s: float) -> int:
    until_s = time.monotonic() + longest_s
    while time.monotonic() < until_s:
        if has_ended(run):
            state = recorded_state(run)
            left = f"; left running: {', '.join(state.survivors)}" if state.survivors else ""
            print(f"{run.name} ended with status {state.exit_status}{left}")
            return 0
        time.sleep(LOOK_S)
    raise CockpitError(f"{run.name} has not ended within {longest_s:g} s: cockpit stop --force {run.name}")

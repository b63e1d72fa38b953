"""What can be known of a change right after it was asked for: refused at once, or what it will do. For set, undo, redo.

It waits only for what the training is about to say by itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from cockpit.history.boundary import NO_END, is_out_of_sight
from cockpit.history.knobs import can_be_now, is_answered
from cockpit.history.measure import recent_phases
from cockpit.history.pause import lands_later
from cockpit.history.state import Entry, State
from cockpit.history.status import found_of
from cockpit.history.trials import entry_of, is_restart
from cockpit.history.trials import words_of as change_words
from cockpit.model.knobs import SCRIPT

from .runs import Run, state_of

PATIENCE_S, LONGEST_S, LOOK_S = 2.0, 60.0, 0.1
NEEDS_WORKERS = "needs num_workers"
"""How the reason begins of what can do nothing as long as there are no workers."""


def say_what_is_known(run: Run, ids: list[str]) -> int:
    """On stderr; the exit status: 1 where a change was refused."""
    refused, notes = to_be_known(run, ids)
    print("".join(f"cockpit: {line}\n" for line in (*refused, *notes)), end="", file=sys.stderr)
    return 1 if refused else 0


def to_be_known(run: Run, ids: list[str]) -> tuple[list[str], list[str]]:
    """What was refused at once, and what the values asked for will do, as the training's rows tell it."""
    began_s = time.monotonic()
    while True:
        state = state_of(run)
        entries = [entry for change in ids if (entry := entry_of(state, change))]
        going = [entry for entry in entries if entry.state != "refused"]  # else its reason is all there is to say
        found = {name: one for entry in going for name, one in _found(state, entry).items()}
        notes = {name: told for name, one in found.items() if (told := _join(one["reason"], one["note"]))}
        if when := when_words(state, entries):
            notes["when"] = when
        for entry in going:
            # rows fall silent once the change has landed
            if entry.note is not None and not any(entry.note in told for told in notes.values()):
                notes[change_words(entry)] = entry.note
        # what a change would need or do is worked out by the training itself, at its next beat
        late = [entry for entry in entries if entry.state == "queued" and not is_answered(state, entry)]
        if not late or time.monotonic() > began_s + patience_s(state):
            over = [entry for entry in entries if entry.state == "refused"]
            refused = [f"{change_words(entry)}: refused, {entry.reason}" for entry in over]
            paused = lands_later(state) if any(entry.state == "queued" for entry in going) else None
            # a reason that names the knob itself says it once
            said = [note if note.startswith(f"{name}: ") else f"{name}: {note}" for name, note in notes.items()]
            return refused, [*said, *([paused] if paused else [])]
        time.sleep(LOOK_S)


def when_words(state: State, entries: Iterable[Entry]) -> str | None:
    """That the boundary that these wait for may never come; None where it will, or nothing waits for it."""
    queued = [entry for entry in entries if entry.state == "queued" and not is_restart(entry)]
    waiting = [entry for entry in queued if not (entry.now and can_be_now(state, entry))]
    if not waiting or not is_out_of_sight(state):
        return None
    return f"{NO_END}: --now does not wait for one" if any(can_be_now(state, each) for each in waiting) else NO_END


def patience_s(state: State) -> float:
    """How long an answer may take: what the model cannot have is refused where a step ends, and steps may be long."""
    phases = recent_phases(state.current)
    return min(PATIENCE_S + (2.0 * phases.step_ms / 1000.0 if phases else 0.0), LONGEST_S)


def _found(state: State, entry: Entry) -> dict[str, Any]:
    found = found_of(state, entry)
    if entry.asked.get("num_workers", SCRIPT) not in (SCRIPT, 0):  # the rows are of what is in force before it
        for one in found.values():
            if (one["reason"] or "").startswith(NEEDS_WORKERS):
                one["reason"] = None
    return found


def _join(*told: str | None) -> str:
    return "; ".join(words for words in told if words)

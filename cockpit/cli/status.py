"""``cockpit status``: what a run is doing, once: one JSON object, or a page for people."""

from __future__ import annotations

import json
import time
from typing import Any

from cockpit.history import crash, handoffs, memory, ranks
from cockpit.history.activity import BADGES, activity_of
from cockpit.history.knobs import KnobRow, knob_rows
from cockpit.history.measure import live_rate, recent_phases
from cockpit.history.pause import words as pause_words
from cockpit.history.report import duration, rate_words, steps_words, trial_line
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.knobs import show_value

from .runs import STATE_DIR, find, name_in, state_of
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (Option("--json", "one JSON object, as the README lists its keys"), STATE_DIR)


def call(verb: Verb, words: Words) -> int:
    """Print it; 0."""
    run = find(name_in(verb, words), words)
    state = state_of(run)
    now_s = time.time()
    if words.has("--json"):
        print(json.dumps(status_of(state, now_s)))
    else:
        print("\n".join(page(state, now_s, crash.helpless(state, run.facts()))))
    return 0


def page(state: State, now_s: float, helpless: str | None = None) -> list[str]:
    """The state as lines for people; – for what was not measured. ``helpless``: why nothing would follow a crash."""
    activity = activity_of(state, now_s)
    badge = BADGES.get(activity.word, BADGES["idle"])
    since = f" for {duration(activity.for_s)}" if activity.for_s is not None else ""
    where = f" {activity.detail}" if activity.word == "stalled" and activity.detail else ""
    base = state.baseline.samples_per_s if state.baseline else None
    lines = [
        f"{state.run}  {badge.word.lower()}{where}{since}  {steps_words(state)}  pid {show_value(state.pid)}",
        f"throughput  {rate_words(live_rate(state))} samples/s, baseline {rate_words(base)}",
        f"a step      {step_words(state)}",
    ]
    if said := pause_words(state):
        lines.append(f"pause       {said}")
    if written := handoffs.words(state, now_s):
        lines.append(f"hand-offs   {written}")
    if crashed := crash.words(state, now_s):
        lines.append(f"crashed     {crashed}")
    if helpless is not None and state.phase in ("running", "paused"):
        lines.append(f"on a crash  {helpless}")
    if grows := memory.words(state):
        lines.append(f"memory      {grows}")
    if costly := handoffs.warning(state, now_s):
        lines.append(f"costly      {costly}")
    if state.probe != "connected" and state.phase in ("running", "paused"):
        lines.append(f"probe       {state.probe}: {state.probe_reason or 'figures are missing or old'}")
    if state.exit_status is not None:
        lines.append(f"ended       with status {state.exit_status}")
    if found := ranks.lines(state, now_s):
        lines += ["", "ranks", *[f"  {line}" for line in found]]
    lines += ["", "knobs", *[f"  {knob_line(row)}" for row in knob_rows(state)]]
    lines += ["", "trials", *([f"  {trial_line(entry)}" for entry in state.ledger] or ["  none yet"])]
    return lines


def step_words(state: State) -> str:
    """Mean milliseconds by phase over the newest blocks."""
    phases = recent_phases(state.current)
    if phases is None:
        return "not measured yet"
    parts: list[tuple[str, Any]] = [
        ("wait", phases.wait_ms),
        ("start", phases.start_ms if phases.wait_ms is not None else None),
        ("forward", phases.forward_ms),
        ("backward", phases.backward_ms),
        ("optimizer", phases.optimizer_ms),
        ("other", phases.other_ms),
    ]
    return f"{phases.step_ms:.1f} ms: " + ", ".join(
        f"{name} {'–' if value is None else format(value, '.1f')}" for name, value in parts
    )


def knob_line(row: KnobRow) -> str:
    """``num_workers  4 (script 0) kept``, what is queued, what was asked for in vain, reason and note."""
    parts = [f"{row.name:<19} {'mixed' if row.mixed else show_value(row.in_force)} (script {show_value(row.script)})"]
    if row.next is not None:
        parts.append(f"next {show_value(row.next)}")
    if row.state != "untouched":
        asked = f" {show_value(row.asked)}" if row.state in ("refused", "rolled_back") else ""
        parts.append(row.state.replace("_", " ") + asked)
    said = [words for words in (row.reason, row.note) if words]
    return " ".join([*parts, f"– {'; '.join(dict.fromkeys(said))}"] if said else parts)

"""What a person's key presses on a knob mean: the value it moves to, and what must be asked of the engine for it.

Pure; called by the app. Presses queue at once, and going back to what runs already withdraws the wish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.history.knobs import KnobRow, knob_rows
from cockpit.history.measure import baseline_of
from cockpit.history.state import State
from cockpit.history.trials import is_restart
from cockpit.model.knobs import BY_NAME, SCRIPT, Value


def moved(knob: KnobRow, following: Value | None, by: int) -> Value | None:
    """The knob's value one press further (``by`` -1 or +1); None where there is nothing further."""
    kind = BY_NAME[knob.name]
    start = next((value for value in (following, knob.in_force, knob.script) if value not in (None, SCRIPT)), None)
    if kind.kind == "switch":
        value: Value = by > 0
    elif kind.kind == "choice":
        at = kind.choices.index(start) if start in kind.choices else 0
        value = kind.choices[max(0, min(len(kind.choices) - 1, at + by))]
    elif isinstance(start, int):
        further = _scaled(int(start), by, knob.script) if kind.grows == "double" else int(start) + by * kind.step
        value = max(kind.low, min(kind.high, further))
    else:
        value = kind.low + kind.step  # nothing is known to start from: the first value that does something
    return None if value == start else value


def _scaled(start: int, by: int, script: Value | None) -> int:
    """The next of the script's own value doubled or halved: however odd that is, presses come back to it."""
    own = script if isinstance(script, int) and script > 0 else max(1, start)
    # one more doubling than it takes to pass ``start``, whatever that is
    steps = [own >> halved for halved in range(own.bit_length())]
    steps += [own << doubled for doubled in range(1, max(1, start).bit_length() + 2)]
    if by > 0:
        return min(step for step in steps if step > start)
    return max((step for step in steps if step < start), default=start)


def flipped(knob: KnobRow, following: Value | None) -> Value | None:
    """The other value of a switch, or the next of a choice; None: this knob cannot be flipped."""
    kind = BY_NAME[knob.name]
    start = following if following is not None else knob.in_force
    if kind.kind == "switch":
        return start is not True
    if kind.kind == "choice":
        at = kind.choices.index(start) if start in kind.choices else -1
        return kind.choices[(at + 1) % len(kind.choices)]
    return None


def waiting(state: State) -> dict[str, Value]:
    """Everything queued for all training loaders, newest wins; a restart is no setting, and waits for itself."""
    found: dict[str, Value] = {}
    for entry in state.ledger:
        if entry.state == "queued" and entry.loader is None and not is_restart(entry):
            found.update(entry.asked)
    return found


@dataclass(frozen=True)
class Plan:
    """``drop``: withdraw what is queued first. ``ask``: then ask for these; empty: nothing."""

    drop: bool
    ask: Mapping[str, Value]


def plan(state: State, wanted: Mapping[str, Value]) -> Plan:
    """How to bring the engine's queue to what is wanted."""
    in_force = {row.name: row.in_force for row in knob_rows(state)}
    queue = waiting(state)
    back = {name for name, value in wanted.items() if name in queue and value == in_force.get(name)}
    news = {name: value for name, value in wanted.items() if value != in_force.get(name)}
    if back:
        return Plan(True, {**{name: value for name, value in queue.items() if name not in back}, **news})
    return Plan(False, {name: value for name, value in news.items() if queue.get(name) != value})


def why_not(action: str, state: State | None, readonly: bool = False) -> str | None:
    """Why an action on the run cannot be done now, as one sentence; None: it can be asked for."""
    if readonly:
        return "this screen is read only"
    if state is None:
        return "the engine has not answered yet"
    if action == "restart" and state.crash is not None:
        return None  # the engine says what it can go on from
    if state.phase in ("ended", "lost"):
        return "the training has ended; only s (save) and q are left" if action != "save" else None
    if state.phase == "stopping" and action in (
        "less",
        "more",
        "flip",
        "apply",
        "undo",
        "redo",
        "baseline",
        "pause",
        "restart",
    ):
        return "the training is being stopped"
    if action == "baseline" and baseline_of(state.current) is None:
        return "nothing to call the baseline yet: this setup has no full window of steps"
    return None


def why_not_knob(knob: KnobRow, asked: Mapping[str, Value]) -> str | None:
    """Why this knob cannot be changed; None: it can. ``asked``: what is queued or just chosen."""
    if knob.can or leans_on(knob, asked):
        return None
    return f"{knob.name}: {knob.reason}" if knob.reason else f"{knob.name}: no training loader has been seen yet"


def leans_on(knob: KnobRow, asked: Mapping[str, Value]) -> bool:
    """Whether what forbids this knob is another one that is itself about to change: then the probe may judge both."""
    return any(name in (knob.reason or "") for name in asked if name != knob.name)


def why_not_now(state: State, asked: Mapping[str, Value]) -> str | None:
    """Why nothing of the queue can land in the middle of the epoch; None: some of it can, and the rest stays queued."""
    if not asked:
        return "nothing is queued: choose a setting and change it with the arrow keys"
    told = None
    for row in (row for row in knob_rows(state) if row.name in asked):
        if row.can_now or leans_on(row, asked):
            return None
        why = f" ({row.reason})" if row.reason else ""
        told = told or f"{row.name} changes only at the next epoch{why}; it stays queued"
    return told

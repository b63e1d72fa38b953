"""What a verb about knobs means for a run: pure decisions over the state, carried out by ``verbs``.

Says which events to make and what to tell the probes, or raises a CockpitError with the sentence for the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.history.knobs import knob_rows, no_loader, probe_failed, queued, rows_for
from cockpit.history.ranks import not_yet
from cockpit.history.state import Entry, State
from cockpit.history.trials import is_restart, words_of
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.events import ChangeAsked, ChangeMoved, Event
from cockpit.model.knobs import (
    BATCH_KNOBS,
    KERNEL_KNOBS,
    LOADER_KNOBS,
    RESTART,
    SCRIPT,
    Value,
    check_value,
    show_value,
)

from .told import Message, ask_message, drop_message


@dataclass(frozen=True)
class Decision:
    """Events to make, messages for the probes, the answer for whoever asked, and what was withdrawn."""

    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    result: Mapping[str, Any]


def ask(
    state: State,
    at_s: float,
    change: str,
    knobs: Mapping[str, object],
    now: bool = False,
    loader: str | None = None,
    origin: str = "person",
) -> Decision:
    """Ask for ``knobs``, and for what is still queued for the same loader. No knobs and ``now``: the queue, now.

    What only a boundary can bring does not hold up what can land now: it is a change of its own, ``later``. Where
    the change is another than was asked for, the answer says which (``asked``) and when (``now``).
    """
    check_running(state)
    _check_loader(state, loader)
    checked = {name: check_value(name, value) for name, value in knobs.items()}
    _check_ranks(state, checked)
    old = [entry for entry in _waiting(state) if entry.loader == loader]
    if not checked and not (now and old):
        raise UsageError("nothing is queued to apply now" if now else "name a knob and a value, as in num_workers=4")
    reason = probe_failed(state) or no_loader(state, _wanted(checked))
    if reason is not None:
        raise CockpitError(reason)
    merged: dict[str, Value] = {}
    for entry in old:
        merged.update(entry.asked)
    merged.update(checked)
    if all(_is_already(state, name, value) for name, value in merged.items()) and loader is None:
        if not old:
            told = ", ".join(f"{name} is already {_as_words(value)}" for name, value in merged.items())
            raise CockpitError(told)
        return Decision(*_withdraw(old, at_s), {"id": None, "dropped": [entry.id for entry in old]})
    at_once = now or any(entry.now and _apart(state, entry.asked, loader)[0] for entry in old)
    soon, later = _apart(state, merged, loader) if at_once else (merged, {})
    promised = at_once and bool(soon)
    if not soon:  # the training says itself why it has to wait
        soon, later = merged, {}
    stays = [entry.id for entry in old if later and entry.asked == later and not entry.now]
    withdrawn = _withdraw([entry for entry in old if entry.id not in stays], at_s)
    parts = [ChangeAsked(at_s, change, soon, at_once, loader, origin)]
    if later and not stays:
        parts.append(ChangeAsked(at_s, f"{change}-later", later, False, loader, origin))
    result: dict[str, Any] = {"id": change}
    if soon != checked or promised != now:
        result.update(asked=soon, now=promised)
    if later:
        result["later"] = {"id": stays[0] if stays else f"{change}-later", "asked": later}
    messages = (ask_message(part.id, part.knobs, part.now, loader) for part in parts)
    return Decision((*withdrawn[0], *parts), (*withdrawn[1], *messages), result)


def _apart(state: State, knobs: Mapping[str, Value], loader: str | None) -> tuple[dict[str, Value], dict[str, Value]]:
    """(what may land at once, what has to wait for a boundary). A loader's workers and what goes with them stay one."""
    rows = rows_for(state, loader)
    waits = {name for name in knobs if name in BATCH_KNOBS}
    group = [name for name in knobs if name in LOADER_KNOBS]
    # where no loader has been seen there may never be one: what needs none does not wait for it
    if not state.loaders or any(name in rows and rows[name].can and not rows[name].can_now for name in group):
        waits.update(group)
    soon = {name: value for name, value in knobs.items() if name not in waits}
    return soon, {name: value for name, value in knobs.items() if name in waits}


def give_up(state: State, at_s: float) -> Decision | None:
    """What was asked of loaders before it was known that the training has none: refused. What waits with it goes on."""
    asked = [(entry, no_loader(state, _wanted(entry.asked))) for entry in _waiting(state)]
    vain = [(entry, reason) for entry, reason in asked if reason is not None]
    if not vain:
        return None
    events, messages = list[Event](), list[Message]()
    for entry, reason in vain:
        events.append(ChangeMoved(at_s, entry.id, "refused", reason=reason))
        messages.append(drop_message(entry.id))
        rest = {name: value for name, value in entry.asked.items() if name in KERNEL_KNOBS}
        if rest:
            events.append(ChangeAsked(at_s, f"{entry.id}-rest", rest, entry.now, entry.loader, entry.origin))
            messages.append(ask_message(f"{entry.id}-rest", rest, entry.now, entry.loader))
    return Decision(tuple(events), tuple(messages), {})


def _wanted(knobs: Mapping[str, Value]) -> list[str]:
    return [name for name, value in knobs.items() if value != SCRIPT]


def drop(state: State, at_s: float) -> Decision:
    """Withdraw everything that is queued and not yet being applied."""
    old = _waiting(state)
    if not old:
        raise CockpitError("no change is queued")
    return Decision(*_withdraw(old, at_s), {"dropped": [entry.id for entry in old]})


def undo(state: State, at_s: float, change: str) -> Decision:
    """Take back the newest change in force: ask for the values it found."""
    check_running(state)
    check_free(state)
    done, _ = stacks(state)
    if not done:
        raise CockpitError("nothing to undo: no change is in force")
    return _again(state, at_s, change, done[-1], 0, "undo")


def redo(state: State, at_s: float, change: str) -> Decision:
    """Make the change that was undone last once more."""
    check_running(state)
    check_free(state)
    _, undone = stacks(state)
    if not undone:
        raise CockpitError("nothing to redo: no change was undone")
    return _again(state, at_s, change, undone[-1], 1, "redo")


def stacks(state: State) -> tuple[list[Entry], list[Entry]]:
    """(changes in force, changes undone), newest last, as an editor would count them.

    A mere restart, as after a crash, has changed nothing, and does not stand before what had.
    """
    done: list[Entry] = []
    undone: list[Entry] = []
    for entry in state.ledger:
        if entry.state not in ("settling", "kept", "reverted") or set(entry.asked) == {RESTART}:
            continue
        if entry.origin == "undo":
            if done:
                undone.append(done.pop())
        elif entry.origin == "redo":
            if undone:
                undone.pop()
            done.append(entry)
        else:
            undone.clear()
            done.append(entry)
    return done, undone


def check_running(state: State) -> None:
    """Raises a CockpitError where no change can come into force any more."""
    if state.phase in ("ended", "lost"):
        raise CockpitError(f"{state.run} has ended: nothing can be changed any more")
    if state.phase == "stopping":
        raise CockpitError(f"{state.run} is stopping: nothing can be changed any more")


def _again(state: State, at_s: float, change: str, entry: Entry, side: int, origin: str) -> Decision:
    pairs = entry.change or {name: (None, value) for name, value in entry.asked.items()}
    values: dict[str, Value] = {}
    for name, pair in pairs.items():
        # back to where nobody had touched it, or once more to what the script has: whatever that is by now
        script = name in entry.as_script if side == 0 else entry.asked.get(name) == SCRIPT
        value = pair[side]
        values[name] = SCRIPT if script or value is None else value
    _check_ranks(state, values)
    asked = ChangeAsked(at_s, change, values, entry.now, entry.loader, origin)
    message = ask_message(change, values, entry.now, entry.loader)
    result = {"id": change, "of": entry.id, "what": words_of(entry), "asked": values}
    return Decision((asked,), (message,), result)


def _waiting(state: State) -> list[Entry]:
    waiting = (entry for entry in queued(state) if entry.state == "queued" and entry.origin != "schedule")
    return [entry for entry in waiting if not is_restart(entry)]


def anything_waits(state: State) -> bool:
    """Whether a change is queued that the training can still be told to forget."""
    return bool(_waiting(state))


def check_free(state: State) -> None:
    """Raises a CockpitError while some change is on its way."""
    pending = [entry for entry in queued(state) if entry.origin != "schedule"]
    if pending and pending[-1].state == "applying":
        raise CockpitError("a change is being applied: wait until it is in force")
    if pending:
        raise CockpitError("a change is still queued: drop it first")


def _withdraw(old: list[Entry], at_s: float) -> tuple[tuple[Event, ...], tuple[Message, ...]]:
    events = tuple(ChangeMoved(at_s, entry.id, "dropped") for entry in old)
    return events, tuple(drop_message(entry.id) for entry in old)


def _check_ranks(state: State, knobs: Mapping[str, Value]) -> None:
    reason = not_yet(state, knobs)
    if reason is not None:
        raise CockpitError(reason)


def _check_loader(state: State, loader: str | None) -> None:
    known = [info.id for info in state.loaders]
    if loader is not None and known and loader not in known:
        raise CockpitError(f"no loader {loader} was seen: there are {', '.join(known)}")


def _is_already(state: State, name: str, value: Value) -> bool:
    """Whether asking would change nothing; False wherever that is not certain."""
    row = next((row for row in knob_rows(state) if row.name == name), None)
    if row is None or row.mixed or row.in_force is None or row.state == "applying":
        return False
    landed = next((entry for entry in reversed(state.ledger) if entry.change and name in entry.change), None)
    if landed is not None and landed.change is not None and landed.change[name][1] != row.in_force:
        return False  # the loaders' report is older than the change
    return row.in_force == (row.script if value == SCRIPT else value)


def _as_words(value: Value) -> str:
    return "as the script has it" if value == SCRIPT else show_value(value)

"""The probe's messages as events, and ours as messages: one function for each kind, pure. Used by ``hear``.

Raises TypeError, ValueError, KeyError or AttributeError where a message is not what it says it is, so that the fold
can rely on what comes through. Nanoseconds become seconds here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cockpit.history.state import State
from cockpit.history.trials import entry_of
from cockpit.model.compiled import CompiledSeen
from cockpit.model.crash import HandoffSeen, IdentitySeen, SessionSeen
from cockpit.model.events import BlockMeasured, ChangeAsked, ChangeMoved, EpochEnded, ProbeConnected
from cockpit.model.knobs import Value
from cockpit.model.pause import ASKED, OVER, PAUSED, REFUSED, RESUMING, PauseMoved
from cockpit.model.stacks import StackPart, StacksSeen

Message = dict[str, Any]


def connected_of(message: Message, at_s: float) -> ProbeConnected:
    """``hello``."""
    return ProbeConnected(
        at_s,
        pid=int(message["pid"]),
        torch=str(message.get("torch", "")),
        python=str(message.get("python", "")),
        accelerator=message.get("accelerator"),
        rank=_count(message, "rank"),
        world=_count(message, "world"),
        off=_mapping(message.get("off") or None),
        devices=tuple(str(name) for name in message.get("devices") or ()),
    )


def block_of(message: Message, at_s: float) -> BlockMeasured:
    """``block``."""
    return BlockMeasured(
        at_s,
        step=int(message["step"]),
        steps=int(message["steps"]),
        samples=_count(message, "samples"),
        wall_s=_known(message, "wall_ns"),
        wait_s=seconds(message.get("wait_ns")),
        start_s=_known(message, "start_ns"),
        forward_s=seconds(message.get("forward_ns")),
        backward_s=_known(message, "backward_ns"),
        optimizer_s=_known(message, "optimizer_ns"),
        epoch=int(message["epoch"]),
        change=message.get("change"),
        capacity=int(message.get("capacity") or 0),
    )


def compiled_of(message: Message, at_s: float) -> CompiledSeen:
    """What a ``tick`` says was compiled so far; nothing known where it says nothing (an older probe)."""
    spent = message.get("compile_ns")
    return CompiledSeen(at_s, seconds(spent), _count(message, "graphs"), _count(message, "recompiles"))


def stacks_of(message: Message, at_s: float) -> StacksSeen:
    """``stacks``: the answer to a ``dump``."""
    parts = tuple(StackPart(str(title), tuple(str(line) for line in lines)) for title, lines in message["parts"])
    return StacksSeen(at_s, str(message["id"]), int(message["pid"]), parts)


def epoch_of(message: Message, at_s: float) -> EpochEnded:
    """``epoch``."""
    return EpochEnded(
        at_s,
        loader=str(message["loader"]),
        epoch=int(message["epoch"]),
        steps=int(message["steps"]),
        samples=_count(message, "samples"),
        wall_s=_known(message, "wall_ns"),
        start_ms=1000.0 * _known(message, "start_ns"),
        whole=bool(message.get("whole", True)),
    )


def moved_of(message: Message, at_s: float) -> ChangeMoved:
    """``change``."""
    stall_ms = message.get("stall_ms")
    return ChangeMoved(
        at_s,
        id=str(message["id"]),
        state=str(message["state"]),
        step=int(message.get("step") or 0),
        stall_ms=None if stall_ms is None else float(stall_ms),
        drain=int(message.get("drain") or 0),
        capacity=int(message.get("capacity") or 0),
        before=_mapping(message.get("before")),
        in_force=_mapping(message.get("in_force")),
        reason=message.get("reason"),
        note=message.get("note"),
    )


def session_of(message: Message, at_s: float) -> SessionSeen:
    """``session``."""
    names, reason = tuple(str(name) for name in message.get("names") or ()), message.get("reason")
    every, sparing = int(message.get("every") or 0), message.get("sparing") is True
    return SessionSeen(at_s, names, _count(message, "epochs"), every, reason, sparing)


def older_of(message: Message, state: State, at_s: float) -> tuple[ChangeMoved, ...]:
    """Where a process could not use the hand-off that it was to go on from, what it went on from instead: more is lost
    than its line in the ledger says."""
    entry = entry_of(state, str(message.get("change")))
    passed = [str(sentence) for sentence in message.get("passed") or ()]
    if entry is None or not passed or message.get("restored") is None:
        return ()
    said = f"{'; '.join(passed)}; it goes on from epoch {message['restored']}, step {message.get('step')} instead"
    if said in (entry.note or ""):
        return ()
    return (ChangeMoved(at_s, entry.id, entry.state, note=f"{entry.note}; {said}" if entry.note else said),)


def handoff_of(message: Message, at_s: float) -> HandoffSeen | None:
    """``handoff``: one that was written, could not be, or was left out; None for what is on its way, or was no more
    than a wish."""
    state, reason = message.get("state"), message.get("reason")
    if state not in ("written", "gone", "failed", "spared") or (state == "failed" and message.get("id") is not None):
        return None
    epoch, step, size = (_count(message, name) for name in ("epoch", "step", "bytes"))
    if state == "spared":
        return HandoffSeen(at_s, epoch, spared=True)
    taken_s = None if message.get("seconds") is None else float(message["seconds"])
    if reason is not None:
        return HandoffSeen(at_s, seconds=taken_s, reason=str(reason))
    return HandoffSeen(at_s, epoch, step, size, taken_s)


def identity_of(message: Message, at_s: float) -> IdentitySeen:
    """``identity``."""
    return IdentitySeen(at_s, {str(name): str(value) for name, value in dict(message["env"]).items()})


def pause_of(message: Message, at_s: float) -> PauseMoved:
    """``pause``: the probe's word on one that was asked for."""
    state, reason = str(message["state"]), message.get("reason")
    if state not in (ASKED, PAUSED, OVER, REFUSED):
        raise ValueError(f"a pause is never {state!r}")
    return PauseMoved(at_s, str(message["id"]), state, _count(message, "step"), reason)


def pause_message(state: State) -> Message | None:
    """Engine to probe: what is said of a pause and has not come about yet; None where nothing is."""
    found = state.pause
    if found is None or found.state not in (ASKED, RESUMING):
        return None
    return {"m": "pause" if found.state == ASKED else "resume", "id": found.id}


def ask_message(change: str, knobs: Mapping[str, Value], now: bool, loader: str | None) -> Message:
    """Engine to probe: apply this. An id that the probe knows already is ignored there."""
    return {"m": "ask", "id": change, "knobs": dict(knobs), "now": now, "loader": loader}


def drop_message(change: str) -> Message:
    """Engine to probe: forget this if it is still queued."""
    return {"m": "drop", "id": change}


def kept_message(change: str) -> Message:
    """Engine to probe: this change stays, nothing has to be kept ready to take it back any more."""
    return {"m": "kept", "id": change}


def schedule_of(start: Mapping[str, Any]) -> dict[str, ChangeAsked]:
    """The changes that ``start.json`` holds for later, by id; their times are filled in when they happen."""
    return {
        str(item["id"]): ChangeAsked(
            0.0,
            id=str(item["id"]),
            knobs=dict(item["knobs"]),
            now=item.get("when") != "epoch",
            loader=item.get("loader"),
            origin="schedule",
        )
        for item in start.get("at", ())
    }


def asked_of(known: ChangeAsked | None, moved: ChangeMoved) -> ChangeAsked:
    """The asking that belongs to a report, as of now.

    Not known where the journal lost it (an engine died at the wrong moment): then what came into force tells it.
    """
    if known is not None:
        return replace(known, at_s=moved.at_s)
    in_force = {name: value for name, value in (moved.in_force or {}).items() if value is not None}
    return ChangeAsked(moved.at_s, moved.id, in_force)


def seconds(ns: int | float | None) -> float | None:
    """Nanoseconds as seconds; None stays None."""
    return None if ns is None else ns / 1e9


def _known(message: Message, name: str) -> float:
    return float(message[name]) / 1e9


def _count(message: Message, name: str) -> int | None:
    value = message.get(name)
    return None if value is None else int(value)


def _mapping(value: Any) -> dict[str, Any] | None:
    return None if value is None else {str(name): item for name, item in dict(value).items()}

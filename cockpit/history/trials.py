"""The ledger: each change from asked to kept or rolled back, and what it gave. Called by the fold only.

A change that lands opens a new segment; its before is the segment that it ended. The comparison of an entry
is renewed with every block until the next change lands, and never touched again after that.
"""

from __future__ import annotations

from dataclasses import replace

from cockpit.analysis.compare import NOT_COMPARABLE, SETTLING, compare
from cockpit.analysis.policy import POLICY
from cockpit.analysis.windows import length_for, rate
from cockpit.model.events import BlockMeasured, ChangeAsked, ChangeMoved, EpochEnded
from cockpit.model.knobs import BATCH_KNOBS, ENV, NO_EFFECT, RESTART, SCRIPT, Value, show_value

from . import around, environment
from .measure import is_due, windows_of
from .state import LEDGER_LONGEST, Entry, Segment, State

PENDING = ("queued", "applying")
_FROM = {
    "applying": PENDING,
    "settling": PENDING,
    "refused": PENDING,
    "dropped": PENDING,
    "ended": PENDING,
    "rolled_back": (*PENDING, "settling", "kept"),
}
"""The states in which a change takes each word of the probe."""


REPLACED = "the next change came before it was measured"


def asked(state: State, event: ChangeAsked) -> State:
    """A new entry, queued; asking for an id again changes nothing."""
    if entry_of(state, event.id):
        return state
    entry = Entry(
        id=event.id,
        asked=dict(event.knobs),
        asked_s=event.at_s,
        now=event.now,
        loader=event.loader,
        origin=event.origin,
        state_s=event.at_s,
    )
    return replace(state, ledger=(*state.ledger, entry)[-LEDGER_LONGEST:])


def moved(state: State, event: ChangeMoved) -> State:
    """The probe's word on a change, by its new state."""
    entry = entry_of(state, event.id)
    if entry is not None and event.note is not None and event.note != entry.note:
        entry = replace(entry, note=event.note)
        state = with_entry(state, entry)
    # a word that comes twice, or late, must not take a change back to where it has been
    if entry is None or entry.state not in _FROM.get(event.state, ()):
        return state
    if event.state == "dropped":
        return replace(state, ledger=tuple(other for other in state.ledger if other.id != event.id))
    after = replace(
        entry,
        state=event.state,
        state_s=event.at_s,
        reason=event.reason if event.reason is not None else entry.reason,
        stall_ms=event.stall_ms if event.stall_ms is not None else entry.stall_ms,
        # the first step under it; whether it is in force can only be said some steps later
        at_step=event.step if event.state == "applying" else entry.at_step,
    )
    if event.state in ("applying", "settling"):
        state = _in_turn(state, entry)
    if event.state == "settling":
        return _landed(state, after, event)
    if event.state == "rolled_back" and entry.landed_s is not None:
        return _rolled_back(state, after, event)
    if event.state in ("refused", "rolled_back", "ended"):
        before = event.before or {}
        asked = entry.asked.items()
        change = {name: (_found(state, name, before[name]), value) for name, value in asked if name in before}
        after = replace(after, verdict=NOT_COMPARABLE, at_step=event.step, change=change or entry.change)
    if event.state == "rolled_back" and not _is_apart(state, entry):
        # the steps that it took to come back are nobody's measure
        current = state.current
        state = replace(state, current=replace(current, discard_steps=max(current.discard_steps, _discard(event))))
    return with_entry(state, after)


def _in_turn(state: State, entry: Entry) -> State:
    """What lands stands before whatever still waits: undo takes back what landed last, not what was asked last."""
    at = state.ledger.index(entry)
    first = next((place for place, other in enumerate(state.ledger[:at]) if other.state == "queued"), at)
    before, between, after = state.ledger[:first], state.ledger[first:at], state.ledger[at + 1 :]
    return replace(state, ledger=(*before, entry, *between, *after))


def _landed(state: State, entry: Entry, event: ChangeMoved) -> State:
    before, in_force = event.before or {}, event.in_force or {}
    entry = replace(
        entry,
        landed_s=event.at_s,
        at_step=event.step if entry.at_step is None else entry.at_step,
        change={name: (_found(state, name, before.get(name)), value) for name, value in in_force.items()},
        as_script=tuple(name for name in in_force if before.get(name) == SCRIPT),
    )
    state = environment.landed(state, entry)
    if _is_apart(state, entry):
        reason = entry.reason or f"{entry.loader} does not train: there is no throughput to compare"
        state = _mark_reverted(state, entry)
        return with_entry(state, replace(entry, state="kept", verdict=NOT_COMPARABLE, reason=reason))
    discard = _discard(event)
    segment = Segment(
        change=event.id,
        follows=state.current.change,
        capacity=event.capacity,
        discard_steps=discard,
        discard_total=discard,
        landed_s=event.at_s,
        cold=is_restart(entry),  # the first window of a new process is nobody's, as that of a run
    )
    least = length_for(max(event.capacity, state.current.capacity)).steps
    entry = replace(entry, settle_steps=discard + (POLICY.windows_kept + segment.cold) * least)
    # a segment in which nothing was measured yet (two changes at one boundary) is nobody's before
    previous = state.current
    if not previous.blocks and state.previous is not None:
        previous = state.previous
        other = entry_of(state, state.current.change)
        if other is not None and other.state in ("settling", "kept") and entry.origin != "undo":
            entry = replace(entry, reason=f"measured together with {words_of(other)}")
    state = _mark_superseded(_mark_reverted(state, entry))
    return replace(with_entry(state, entry), previous=previous, current=segment)


def _found(state: State, name: str, value: Value | None) -> Value | None:
    """``script`` by the value that it has, where that is known: ``off→bf16`` tells more than ``script→bf16``."""
    scripts = (report.script for report in state.kernels if report.name == name and report.script is not None)
    return next(scripts, value) if value == SCRIPT else value


def name_scripts(state: State) -> State:
    """Where a change was told before the rows were: what the script has is known now."""
    for entry in state.ledger:
        pairs = entry.change or {}
        if any(pair[0] == SCRIPT for pair in pairs.values()):
            named = {name: (_found(state, name, old), new) for name, (old, new) in pairs.items()}
            state = with_entry(state, replace(entry, change=named)) if named != pairs else state
    return state


def _discard(event: ChangeMoved) -> int:
    """Steps to throw away: what the old workers had made, and as many as the new ones may have made in the pause."""
    return event.drain + max(event.capacity + POLICY.discard_extra, POLICY.discard_least)


def _is_apart(state: State, entry: Entry) -> bool:
    """A change of a loader that does not train: the steps go on as they were, and so does their measuring."""
    return any(loader.id == entry.loader and loader.role == "other" for loader in state.loaders)


def _mark_superseded(state: State) -> State:
    """The change that was still settling stays in force, but no more windows of it alone will come."""
    other = entry_of(state, state.current.change)
    if other is None or other.state != "settling":
        return state
    word = "kept" if other.epoch_over or not needs_epoch(other) else "settling"
    reason = f"{other.reason}; {REPLACED}" if other.reason else REPLACED
    after = replace(other, state=word, verdict=NOT_COMPARABLE, delta_pct=None, interval_pct=None, reason=reason)
    return with_entry(state, after)


def _mark_reverted(state: State, entry: Entry) -> State:
    """An undo takes the change that it takes back from kept to reverted."""
    if entry.origin != "undo":
        return state
    for other in reversed(state.ledger):
        if other.id != entry.id and other.state in ("kept", "settling") and other.origin != "undo":
            verdict = NOT_COMPARABLE if other.verdict == SETTLING else other.verdict
            return with_entry(state, replace(other, state="reverted", verdict=verdict))
    return state


def _rolled_back(state: State, entry: Entry, event: ChangeMoved) -> State:
    """The former setup runs again: its own segment goes on, after throwing away what was in flight."""
    state = with_entry(environment.rolled_back(state, entry), replace(entry, verdict=NOT_COMPARABLE))
    if state.previous is not None and state.current.follows == event.id and not state.current.blocks:
        # both landed at one boundary and both come back: what the later one replaced was never measured
        return replace(state, current=replace(state.current, follows=state.previous.change))
    if state.current.change != event.id or state.previous is None:
        return state
    discard = _discard(event)
    follows = state.current.follows
    if state.previous.change != follows:
        # what runs again was never measured itself, so there is no segment of it to go on with
        anew = Segment(follows, event.capacity, discard, discard, event.at_s)
        return replace(state, current=anew)
    resumed = replace(state.previous, discard_steps=discard, discard_total=discard, landed_s=event.at_s)
    return replace(state, current=resumed, previous=None)


def judge(state: State, block: BlockMeasured) -> State:
    """Renew the comparison of the change that this block was measured under."""
    segment = state.current
    entry = entry_of(state, segment.change) if segment.change else None
    if entry is None or block.change != segment.change or not is_due(segment):
        return state
    return _judged(state, entry, block.at_s, block.steps)


def epoch_over(state: State, event: EpochEnded) -> State:
    """A whole epoch has passed: a batch size under which it was seen to its end may be kept now."""
    for entry in state.ledger:
        meant = needs_epoch(entry) and entry.loader in (None, event.loader)
        if entry.state == "settling" and meant and not entry.epoch_over:
            entry = replace(entry, epoch_over=True)
            state = with_entry(state, entry)
            if state.current.change == entry.id:
                state = _judged(state, entry, event.at_s, 0)
            else:  # another has landed on top of it meanwhile: no more windows of it alone will come
                state = with_entry(state, replace(entry, state="kept", state_s=event.at_s))
    return state


def needs_epoch(entry: Entry) -> bool:
    """Whether only a whole epoch shows that the change may stay."""
    return any(name in BATCH_KNOBS for name in entry.asked)


def _judged(state: State, entry: Entry, at_s: float, steps: int) -> State:
    segment, before = state.current, state.previous
    if before is None:
        return state
    capacity = max(segment.capacity, before.capacity)
    ours = windows_of(segment, capacity)[: POLICY.windows_after_most]
    theirs = windows_of(before, capacity)
    delta, idle = compare(theirs, ours), is_idle(entry)
    settled = min(entry.settled_steps + steps, entry.settle_steps)
    proven = entry.epoch_over or not needs_epoch(entry)
    kept = entry.state == "settling" and proven and len(ours) >= POLICY.windows_kept
    return with_entry(
        state,
        replace(
            entry,
            state="kept" if kept else entry.state,
            state_s=at_s if kept else entry.state_s,
            settled_steps=entry.settle_steps if kept else settled,
            before_samples_per_s=rate(theirs),
            before_windows=len(theirs),
            after_samples_per_s=rate(ours),
            after_windows=len(ours),
            delta_pct=None if idle else delta.delta_pct,
            interval_pct=None if idle else delta.interval_pct,
            verdict=SETTLING if not kept and entry.state != "kept" else NOT_COMPARABLE if idle else delta.verdict,
            flags=around.flags(before.around, segment.around) if delta.delta_pct is not None and not idle else (),
        ),
    )


def words_of(entry: Entry) -> str:
    """A change in a few words: ``num_workers 0→4, prefetch_factor 2``; asked values where none is in force yet."""
    pairs = entry.change or {}
    parts = []
    for name, value in entry.asked.items():
        if name in pairs and pairs[name][0] is not None:
            old, new = pairs[name]
            parts.append(f"{name} {show_value(old)}→{show_value(new)}")
        else:
            parts.append(f"{name} {'as the script has it' if value == SCRIPT else show_value(value)}")
    return ", ".join(parts)


def is_restart(entry: Entry) -> bool:
    """Whether another process is to go on with the training, or has: no probe can be asked for that."""
    return any(name == RESTART or name.startswith(ENV) for name in entry.asked)


def is_idle(entry: Entry) -> bool:
    """Whether it is in force and changes nothing here: whatever differs since is of something else."""
    return (entry.reason or "").startswith(NO_EFFECT) and not is_restart(entry)


UNCOUNTED = "no samples are counted here"
"""Why nothing that is tried here can be compared: a training without a loader, or whose batches have no length."""


def uncounted(entry: Entry) -> bool:
    """Whether windows were measured on either side, and no rate came of them."""
    sides = (
        (entry.before_windows, entry.before_samples_per_s),
        (entry.after_windows, entry.after_samples_per_s),
    )
    return any(windows and per_s is None for windows, per_s in sides)


def entry_of(state: State, change: str | None) -> Entry | None:
    """The ledger's entry with that id."""
    return next((entry for entry in reversed(state.ledger) if entry.id == change), None)


def with_entry(state: State, entry: Entry) -> State:
    """The state with ``entry`` in the place of the one of its id."""
    ledger = tuple(entry if other.id == entry.id else other for other in state.ledger)
    return replace(state, ledger=ledger)

"""``fold(state, event) -> state``: the one place where events become knowledge. Pure; no clock, no files.

Serves the live run, the journal, replay, tests and reports alike, so a recording shows what the live screen
showed. One small function per kind of event, found in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from cockpit.model.compiled import CompiledSeen
from cockpit.model.crash import Crashed, HandoffSeen, IdentitySeen, Resumed, SessionSeen
from cockpit.model.disk import DiskSeen
from cockpit.model.events import (
    BaselineSet,
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    EpochEnded,
    Event,
    EventsDropped,
    LoadersSeen,
    MachineSeen,
    OutputSeen,
    ProbeConnected,
    ProbeLost,
    ProcessStarted,
    RunStarted,
    Sampled,
    SetupSaved,
    Stopping,
    TrainingEnded,
)
from cockpit.model.gpu import GpuSampled
from cockpit.model.memory import MemorySeen
from cockpit.model.missing import ProbeMissed
from cockpit.model.pause import PauseMoved
from cockpit.model.ranks import RanksSeen
from cockpit.model.stacks import StacksSeen

from . import around, compiled, crash, ends, environment, gpu, handoffs, measure, memory, pause, trials
from .state import EPOCHS_LONGEST, State


def fold(state: State, event: Event) -> State:
    """The state after ``event``. An event of a kind that nobody handles changes nothing but the time."""
    handle = _HANDLERS.get(type(event))
    after = handle(state, event) if handle else state
    return replace(after, at_s=max(state.at_s, event.at_s))


def fold_all(events: Iterable[Event], state: State | None = None) -> State:
    """Fold every event, oldest first, from ``state`` (default: an empty one)."""
    state = state or State()
    for event in events:
        state = fold(state, event)
    return state


def _run_started(state: State, event: RunStarted) -> State:
    return replace(
        state,
        run=event.run,
        argv=tuple(event.argv),
        cwd=event.cwd,
        script=event.script,
        setup=dict(event.setup),
        loader_setups={name: dict(knobs) for name, knobs in (event.loaders or {}).items()},
        environment=environment.from_start(event.environment) or None,
        started_s=event.at_s,
    )


def _process_started(state: State, event: ProcessStarted) -> State:
    return replace(state, pid=event.pid, phase="running" if state.phase == "starting" else state.phase)


def _machine(state: State, event: MachineSeen) -> State:
    return replace(state, machine=event)


def _gpu(state: State, event: GpuSampled) -> State:
    return around.gpu_sampled(replace(state, gpu=event), event)


def _probe_connected(state: State, event: ProbeConnected) -> State:
    others = tuple(rank for rank in state.ranks if rank.pid != event.pid)
    seen = replace(state, probe="connected", probe_seen_s=event.at_s, probe_reason=None, torch=event.torch)
    return replace(seen, ranks=(*others, event), leaving_s=None)


def _probe_missed(state: State, event: ProbeMissed) -> State:
    return replace(state, probe_reason=event.reason) if state.probe == "waiting" else state


def _probe_lost(state: State, event: ProbeLost) -> State:
    left = tuple(rank for rank in state.ranks if rank.pid != event.pid)
    return replace(state, ranks=left, probe="connected" if left else "lost")


def _stacks(state: State, event: StacksSeen) -> State:
    same = tuple(each for each in state.stacks if each.id == event.id and each.pid != event.pid)
    return replace(state, stacks=(*same, event))


def _team(state: State, event: RanksSeen) -> State:
    return replace(state, team=event)


def _loaders(state: State, event: LoadersSeen) -> State:
    return trials.name_scripts(replace(state, loaders=event.loaders, kernels=event.kernels))


def _sampled(state: State, event: Sampled) -> State:
    state = around.sampled(pause.seen(state, event), event)
    known: dict[str, Any] = {name: value for name in _COUNTERS if (value := getattr(event, name)) is not None}
    if event.step == 0 and state.step:
        known = {}  # a launcher that speaks once its ranks are gone has made no step: it does not know the run's
    recent, stepping = measure.stepped(state, event)
    point = measure.point_of(event, state.rings[0].points, recent)
    point = replace(point, gpu=gpu.lead_share(state, event.at_s))
    rings = tuple(measure.extend(ring, point) for ring in state.rings)
    if event.doing == "shutdown" and state.leaving_s is None:
        known["leaving_s"] = event.at_s - (event.doing_for_s or 0.0)
    longest_s = _longest(state, event)
    return replace(state, latest=event, recent=recent, stepping=stepping, rings=rings, longest_s=longest_s, **known)


def _longest(state: State, event: Sampled) -> Mapping[str, float] | None:
    last, known = state.latest, state.longest_s or {}
    if last is None or last.doing is None or last.doing_for_s is None:
        return state.longest_s
    goes_on = event.doing == last.doing and event.doing_for_s is not None and event.doing_for_s >= last.doing_for_s
    if goes_on or last.doing_for_s <= known.get(last.doing, LONG_S):
        return state.longest_s
    return {**known, last.doing: last.doing_for_s}


LONG_S = 0.5
"""Shorter spells are not kept: they could not make anything look stalled."""
_COUNTERS = ("step", "epoch", "step_in_epoch", "optimizer_steps")


def _block(state: State, event: BlockMeasured) -> State:
    return trials.judge(measure.with_block(state, event), event)


def _epoch(state: State, event: EpochEnded) -> State:
    # an epoch in whose middle something changed is nobody's
    current = replace(state.current, epoch_s=event.wall_s) if event.whole else state.current
    state = replace(state, current=current, epochs=(*state.epochs, event)[-EPOCHS_LONGEST:])
    return trials.epoch_over(state, event)


def _baseline(state: State, event: BaselineSet) -> State:
    found = measure.baseline_of(state.current)
    return replace(state, baseline=replace(found, by_person=True)) if found else state


def _output(state: State, event: OutputSeen) -> State:
    return replace(state, output=event)


def _saved(state: State, event: SetupSaved) -> State:
    return replace(state, saved_path=event.path)


def _stopping(state: State, event: Stopping) -> State:
    if state.phase in ("ended", "lost"):
        return state
    return replace(state, phase="stopping", stopping_until_s=event.until_s)


def _disk(state: State, event: DiskSeen) -> State:
    return replace(state, disk_free_bytes=event.free_bytes)


def _ended(state: State, event: TrainingEnded) -> State:
    phase = "lost" if event.exit_status is None else "ended"
    ended = replace(
        crash.at_rest(state, event.at_s),
        phase=phase,
        exit_status=event.exit_status,
        survivors=event.survivors,
        ended_s=event.at_s,
    )
    return ends.close_pending(ended, event.at_s)


def _dropped(state: State, event: EventsDropped) -> State:
    return replace(state, events_dropped=state.events_dropped + event.count)


_HANDLERS: dict[type, Callable[[State, Any], State]] = {
    RunStarted: _run_started,
    ProcessStarted: _process_started,
    MachineSeen: _machine,
    ProbeConnected: _probe_connected,
    ProbeLost: _probe_lost,
    ProbeMissed: _probe_missed,
    RanksSeen: _team,
    StacksSeen: _stacks,
    PauseMoved: pause.moved,
    SessionSeen: crash.session,
    HandoffSeen: handoffs.seen,
    IdentitySeen: crash.identity,
    Crashed: crash.crashed,
    Resumed: crash.resumed,
    LoadersSeen: _loaders,
    Sampled: _sampled,
    GpuSampled: _gpu,
    BlockMeasured: _block,
    CompiledSeen: compiled.seen,
    EpochEnded: _epoch,
    ChangeAsked: trials.asked,
    ChangeMoved: trials.moved,
    BaselineSet: _baseline,
    OutputSeen: _output,
    SetupSaved: _saved,
    Stopping: _stopping,
    DiskSeen: _disk,
    MemorySeen: memory.seen,
    TrainingEnded: _ended,
    EventsDropped: _dropped,
}

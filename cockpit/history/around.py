"""What went on around a training while a setting of it was measured, and what to say beside a figure where it changed.

Called by the fold. A figure that may be somebody else's doing still stands, since nobody knows how much of it is; but
it stands beside a sentence that says so, and in no colour of its own.
"""

from __future__ import annotations

from dataclasses import replace

from cockpit.model.events import Sampled
from cockpit.model.gpu import GpuSampled

from .state import Around, Flag, Segment, State

MEMORY_S = 120.0
"""What is older counts less and less: a comparison rests on the windows just before a change."""
LEAST_S, LEAST_LOOKS = 2.0, 2
TIGHT = 0.8
"""Where less than this share of the usable cores is busy, there is room for everybody."""
MOVED_CORES, MOVED_SHARE = 0.2, 0.1
"""So many cores, and so large a share of the usable ones, are no accident of a sample."""
THROTTLED_MOVED = 0.2


def foreign(event: Sampled, usable: float) -> float | None:
    """Cores kept busy by whoever is not of this run; None where that is not measured, as where workers of a short
    epoch came and went; or a quota counts instead: then other people's work does not use ours up."""
    known = [part for part in (event.cpu_main, event.cpu_workers, event.cpu_others) if part is not None]
    if not known or event.cpu_unseen or not event.cores_busy or len(event.cores_busy) > usable + 0.5:
        return None
    return max(0.0, sum(event.cores_busy) - sum(known))


def sampled(state: State, event: Sampled) -> State:
    """One more sample of the setting that is in force now."""
    cores = None if state.machine is None else foreign(event, state.machine.cpus_usable)
    segment = state.current
    if cores is None or segment.discard_steps or not segment.blocks:
        return state
    seen = segment.around
    seconds = min(seen.seconds, MEMORY_S) + event.span_s
    share = event.span_s / seconds if seconds else 0.0
    busy = sum(event.cores_busy) / len(event.cores_busy)
    after = Around(
        seconds,
        seen.cores + share * (cores - seen.cores),
        seen.busy + share * (busy - seen.busy),
        len(event.cores_busy),
        seen.throttled_of,
        seen.throttled,
    )
    return _with(state, segment, after)


def gpu_sampled(state: State, event: GpuSampled) -> State:
    """How often a device of the run was held back."""
    told = [device.throttled for device in event.devices if device.throttled is not None]
    segment = state.current
    if not told or segment.discard_steps or not segment.blocks:
        return state
    seen = segment.around
    count = min(seen.throttled_of, int(MEMORY_S)) + 1
    after = replace(seen, throttled_of=count, throttled=seen.throttled + (any(told) - seen.throttled) / count)
    return _with(state, segment, after)


def _with(state: State, segment: Segment, around: Around) -> State:
    return replace(state, current=replace(segment, around=around))


def flags(before: Around, after: Around) -> tuple[Flag, ...]:
    """One for each thing around the training that differed before a change and after it."""
    found = []
    if min(before.seconds, after.seconds) >= LEAST_S and max(before.busy, after.busy) >= TIGHT:
        moved = abs(after.cores - before.cores)
        if moved >= max(MOVED_CORES, MOVED_SHARE * max(before.usable, after.usable)):
            words = f"other programs used {before.cores:.1f} cores before it and {after.cores:.1f} after"
            found.append(Flag("others' load changed", words))
    moved = abs(after.throttled - before.throttled)
    if min(before.throttled_of, after.throttled_of) >= LEAST_LOOKS and moved >= THROTTLED_MOVED:
        first, then = round(100 * before.throttled), round(100 * after.throttled)
        words = f"the accelerator was held back {first} % of the time before it and {then} % after"
        found.append(Flag("throttling changed", words))
    return tuple(found)

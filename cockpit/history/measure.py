"""Measured events into bounded history: chart points, segments of blocks, the baseline, mean phases.

Called by the fold only (and by the screen for mean phases). It never decides whether a change was good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cockpit.analysis.policy import POLICY
from cockpit.analysis.windows import Window, length_for, rate, windows
from cockpit.model.events import BlockMeasured, Sampled
from cockpit.model.pause import PAUSED

from .state import RECENT_LONGEST, Baseline, Phases, Point, Ring, Segment, State

RENEWED_EVERY = 10
RECENT_BLOCKS = 20
RATE_S, RATE_OLD_S = 6.0, 10.0
"""The live rate is of the newest steps that took so long, and of no use so long after them."""
_SUMS = ("samples", "wall_s", "wait_s", "start_s", "forward_s", "backward_s", "optimizer_s")
HOLD_LEAST_S = 2.0
"""A slow step ends seldom: until this long after the last one (or three steps) its figures are held."""


def stepped(state: State, event: Sampled) -> tuple[tuple[Sampled, ...], Sampled | None]:
    """(the newest samples in which steps ended, what has come since). Called with each sample that is new.

    A slow step takes many samples, and ends in one: its time, and its samples, are those of all of them.
    """
    if event.wall_s is None:
        return state.recent, state.stepping
    whole = event if state.stepping is None else _sum(state.stepping, event)
    return ((*state.recent, whole)[-RECENT_LONGEST:], None) if event.steps else (state.recent, whole)


def _sum(first: Sampled, then: Sampled) -> Sampled:
    sums: dict[str, Any] = {name: _sum_if_known(getattr(first, name), getattr(then, name)) for name in _SUMS}
    return replace(then, span_s=first.span_s + then.span_s, steps=first.steps + then.steps, **sums)


def _sum_if_known(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def live_rate(state: State) -> float | None:
    """Samples per second over the last few seconds of steps that have ended; None before the first, and long after.

    While it is paused there is no rate."""
    if state.phase == "paused":
        return None
    rates, wall_s = 0.0, 0.0
    for sample in reversed(state.recent):
        if not sample.wall_s or not sample.steps or sample.samples is None:
            continue
        if not wall_s and state.at_s - sample.at_s > max(RATE_OLD_S, 3.0 * sample.wall_s / sample.steps):
            return None
        rates, wall_s = rates + sample.samples, wall_s + sample.wall_s
        if wall_s >= RATE_S:
            break
    return rates / wall_s if rates and wall_s > 0.0 else None


def point_of(event: Sampled, before: Sequence[Point], recent: Sequence[Sampled]) -> Point:
    """The chart point of one sample; shares of a step that has not ended yet are those of the last one.

    While it is paused there is nothing to hold on to: a gap."""
    cpu = _sum_known(event.cpu_main, event.cpu_workers, event.cpu_others)
    if event.steps and event.wall_s:
        event = recent[-1]
        assert event.wall_s
        parts = _sum_known(event.forward_s, event.backward_s, event.optimizer_s)
        model = min(1.0, parts / event.wall_s) if parts is not None and event.forward_s is not None else None
        wait = min(1.0, event.wait_s / event.wall_s) if event.wait_s is not None else None
        per_s = event.samples / event.wall_s if event.samples else None
        return Point(event.at_s, 1, model, wait, cpu, per_s)
    ended = [sample for sample in recent if sample.steps and sample.wall_s]
    if ended and before and event.doing != PAUSED:
        last = ended[-1]
        hold_s = max(HOLD_LEAST_S, 3.0 * (last.wall_s or 0.0) / last.steps)
        if event.at_s - last.at_s <= hold_s:
            held = before[-1]
            return Point(event.at_s, 1, held.model, held.wait, cpu, held.samples_per_s)
    return Point(event.at_s, 1, None, None, cpu, None)


def _sum_known(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def extend(ring: Ring, point: Point) -> Ring:
    """The ring with ``point`` in it: averaged into the newest place, or a new place."""
    if ring.points and int(ring.points[-1].at_s / ring.width_s) == int(point.at_s / ring.width_s):
        return replace(ring, points=(*ring.points[:-1], _average(ring.points[-1], point)))
    return replace(ring, points=(*ring.points, point)[-ring.longest :])


def _average(old: Point, new: Point) -> Point:
    def mean(a: float | None, b: float | None) -> float | None:
        if a is None or b is None:
            return b if a is None else a
        return (a * old.weight + b) / (old.weight + 1)

    return Point(
        old.at_s,
        old.weight + 1,
        mean(old.model, new.model),
        mean(old.wait, new.wait),
        mean(old.cpu, new.cpu),
        mean(old.samples_per_s, new.samples_per_s),
        mean(old.gpu, new.gpu),
    )


def with_block(state: State, block: BlockMeasured) -> State:
    """The block in its segment: thrown away while older workers' batches are served, else kept (bounded)."""
    segment = state.current
    if block.change != segment.change:
        return state
    if segment.discard_steps > 0:
        left = max(0, segment.discard_steps - block.steps)
        return replace(state, current=replace(segment, discard_steps=left))
    blocks = (*segment.blocks, block)[-POLICY.blocks_kept :]
    grown = replace(segment, blocks=blocks, capacity=max(segment.capacity, block.capacity), seen=segment.seen + 1)
    state = replace(state, current=grown)
    if not is_due(grown):
        return state
    if grown.change is None and (found := baseline_of(grown)) and not (state.baseline and state.baseline.by_person):
        return replace(state, baseline=found)
    return state


def is_due(segment: Segment) -> bool:
    """Whether judgements over the segment are to be renewed: always, until it is full; then at every tenth block.

    One more block among hundreds moves nothing, and a fold of a long run must stay quick.
    """
    return segment.seen <= POLICY.blocks_kept or segment.seen % RENEWED_EVERY == 0


def windows_of(segment: Segment, capacity: int) -> tuple[Window, ...]:
    """The segment's windows at the length for ``capacity``; the first of a cold run is never among them."""
    found = windows(segment.blocks, length_for(max(capacity, segment.capacity)))
    return found[1:] if segment.cold else found


def baseline_of(segment: Segment) -> Baseline | None:
    """What the segment says about "now, before any change"; None while it has no warm window."""
    found = windows_of(segment, segment.capacity)
    per_s = rate(found)
    if per_s is None:
        return None
    return Baseline(per_s, len(found), phases_of(segment.blocks), segment.epoch_s)


def recent_phases(segment: Segment) -> Phases | None:
    """``phases_of`` what the segment did last: what "now" means for phases, on the screen and in words."""
    return phases_of(segment.blocks[-RECENT_BLOCKS:])


def phases_of(blocks: Sequence[BlockMeasured]) -> Phases | None:
    """Mean milliseconds of a step by phase over ``blocks``; None where there are none."""
    steps = sum(block.steps for block in blocks)
    if not steps:
        return None

    def mean_ms(name: str) -> float | None:
        values = [getattr(block, name) for block in blocks]
        return None if any(value is None for value in values) else 1000.0 * sum(values) / steps

    whole = mean_ms("wall_s") or 0.0
    named = {name: mean_ms(f"{name}_s") for name in ("wait", "start", "forward", "backward", "optimizer")}
    known = None if None in named.values() else max(0.0, whole - sum(value or 0.0 for value in named.values()))
    return Phases(
        step_ms=whole,
        wait_ms=named["wait"],
        start_ms=named["start"] or 0.0,
        forward_ms=named["forward"],
        backward_ms=named["backward"] or 0.0,
        optimizer_ms=named["optimizer"] or 0.0,
        other_ms=known,
        samples=_mean_samples(blocks, steps),
    )


def _mean_samples(blocks: Sequence[BlockMeasured], steps: int) -> float | None:
    counts = [block.samples for block in blocks if block.samples is not None]
    return sum(counts) / steps if len(counts) == len(blocks) else None


SAME_SAMPLES = 0.02
"""Steps whose samples differ by less than this share are of one size: the last batch of an epoch is smaller."""


def scaled_to(phases: Phases, samples: float | None) -> Phases:
    """``phases`` as long as they would be for a step of ``samples``, so that two batch sizes can be drawn side by side.

    As it is where either is not known, or they are the same but for the last batches.
    """
    if not samples or not phases.samples or abs(phases.samples / samples - 1.0) <= SAME_SAMPLES:
        return phases
    factor = samples / phases.samples
    named = {name: value for name, value in vars(phases).items() if name.endswith("_ms") and value is not None}
    return replace(phases, samples=samples, **{name: value * factor for name, value in named.items()})

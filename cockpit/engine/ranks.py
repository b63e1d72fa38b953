"""Who trains in this run, how each fares, and what all of them have in common. Called by ``hear``.

Decides nothing about a change (``together`` does) and never puts the figures of two processes into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cockpit.model.events import Event, KnobReport, LoaderInfo, LoadersSeen
from cockpit.model.knobs import BY_NAME, show_value
from cockpit.model.ranks import NOT_YET, RankInfo, RanksSeen

from .probes import Probe
from .told import Message

TOLD_S = 2.0
TOLD_S_A_RANK = 0.5
"""Beyond four ranks they are told of less often, so that the journal stays small."""
IDLE_S, BUSY_S = 30.0, 10.0
"""A process that made no step for so long while another made one within so long has done its part."""
HELD_S = 30.0
"""Figures of a step that ended longer ago say nothing about now."""
MOST_GONE = 64


class Ranks:
    """``gone`` are those that have trained and are no more, by number."""

    def __init__(self) -> None:
        self._gone: dict[int, RankInfo] = {}
        self._told: tuple[RankInfo, ...] = ()
        self._told_s = 0.0

    def joined(self, probe: Probe, probes: Iterable[Probe], at_s: float) -> None:
        """It trains from now on: in the place of one that has gone, or in a new one."""
        probe.trains, probe.idle, probe.joined_s, probe.stepped_s = True, False, at_s, at_s
        taken = {other.rank for other in probes if other.trains and other is not probe}
        probe.number = next(number for number in range(len(taken) + 1) if number not in taken)
        self._gone.pop(probe.rank, None)

    def left(self, probe: Probe) -> None:
        """Its connection has closed."""
        if probe.trains:
            self._gone[probe.rank] = RankInfo(probe.rank, probe.pid, probe.step, alive=False)
            while len(self._gone) > MOST_GONE:
                self._gone.pop(next(iter(self._gone)))

    def heard(self, probe: Probe, tick: Message, at_s: float) -> None:
        """One tick of a process that trains; raises TypeError or ValueError where it is not one."""
        probe.own.add(tick, at_s)
        probe.step = int(tick["step"])
        if tick["steps"]:
            probe.stepped_s, probe.idle = at_s, False

    def see(self, members: Sequence[Probe], probes: Sequence[Probe], at_s: float) -> list[Event]:
        """All ranks, where there is more to tell than that one process trains, and it is time to."""
        for probe in members:
            _measure(probe, at_s)
        self._gone = {rank: info for rank, info in self._gone.items() if rank not in {p.rank for p in members}}
        helpers = bool(members) and len(probes) > len(members)
        if not self._told and len(members) + len(self._gone) < 2 and not helpers:
            return []
        found = [RankInfo(p.rank, p.pid, p.step, p.wait_ms, p.samples_per_s) for p in members]
        ranks = tuple(sorted([*found, *self._gone.values()], key=lambda info: info.rank))
        every = max(TOLD_S, TOLD_S_A_RANK * len(ranks))
        again = len(ranks) > 1 and bool(members) and at_s - self._told_s >= every
        if _who(ranks) == _who(self._told) and not again:
            return []
        self._told, self._told_s = ranks, at_s
        return [RanksSeen(at_s, ranks, world_of(members))]


def _who(ranks: Iterable[RankInfo]) -> list[tuple[int, int, bool]]:
    return [(info.rank, info.pid, info.alive) for info in ranks]


def _measure(probe: Probe, at_s: float) -> None:
    """Its figures since they were looked at last; where no step has ended since, the former are held for a while."""
    if at_s - probe.measured_s < TOLD_S:
        return
    if not probe.own.has_step:  # what it does meanwhile belongs to the step that is under way
        if at_s - probe.measured_s > max(HELD_S, 3.0 * probe.step_s):
            probe.wait_ms = probe.samples_per_s = None
        return
    taken = probe.own.take(at_s)
    steps, wait_s, wall_s, samples = (taken.get(name) for name in ("steps", "wait_s", "wall_s", "samples"))
    if steps:
        probe.measured_s, probe.step_s = at_s, (wall_s or 0.0) / steps
        probe.wait_ms = None if wait_s is None else 1000.0 * wait_s / steps
        probe.samples_per_s = samples / wall_s if samples is not None and wall_s else None


def world_of(members: Iterable[Probe]) -> int | None:
    """How many ranks there are in all, as far as any of them says."""
    return max((probe.greeting.world for probe in members if probe.greeting.world), default=None)


def members_of(probes: Iterable[Probe]) -> list[Probe]:
    """Those that train, the first rank first."""
    training = (probe for probe in probes if probe.trains and not probe.idle)
    return sorted(training, key=lambda probe: (probe.rank, probe.order))


def mark_idle(probes: Iterable[Probe], at_s: float) -> None:
    """One that has trained and now only waits for a process that it started is no rank beside it."""
    training = [probe for probe in probes if probe.trains]
    newest_s = max((probe.stepped_s for probe in training), default=0.0)
    if at_s - newest_s < BUSY_S:
        for probe in training:
            probe.idle = newest_s - probe.stepped_s > IDLE_S


def common(lead: Probe, members: Sequence[Probe], at_s: float) -> LoadersSeen:
    """The leader's loaders and knobs; where another rank differs or cannot follow, that is said instead."""
    others = [probe for probe in members if probe is not lead]
    if not others and (world_of(members) or 1) < 2:
        return LoadersSeen(at_s, lead.loaders, lead.kernels)
    loaders = tuple(
        replace(loader, knobs=tuple(_shared(lead, loader, report, others) for report in loader.knobs))
        for loader in lead.loaders
    )
    return LoadersSeen(at_s, loaders, tuple(_fixed(report) for report in lead.kernels))


def _shared(lead: Probe, loader: LoaderInfo, report: KnobReport, others: Iterable[Probe]) -> KnobReport:
    if BY_NAME[report.name].room != "loader":
        return _fixed(report)
    for probe in others:
        theirs = next((mine for each in probe.loaders if each.id == loader.id for mine in each.knobs
                       if mine.name == report.name), None)  # fmt: skip
        if theirs is None:
            continue
        if None not in (report.in_force, theirs.in_force) and report.in_force != theirs.in_force:
            words = f"{lead.name} has {show_value(report.in_force)}, {probe.name} {show_value(theirs.in_force)}"
            report = replace(report, in_force=None, note=words)
        if (report.can and not theirs.can) or (report.can_now and not theirs.can_now):
            reason = f"{probe.name}: {theirs.reason}" if theirs.reason else report.reason
            report = replace(
                report, can=report.can and theirs.can, can_now=report.can_now and theirs.can_now, reason=reason
            )
    return report


def _fixed(report: KnobReport) -> KnobReport:
    """A knob that cannot be changed on several ranks; what is in force stays told."""
    return replace(report, can=False, can_now=False, reason=report.reason if not report.can else NOT_YET)

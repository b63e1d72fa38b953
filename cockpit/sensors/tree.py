"""CPU that a run's processes use, in cores, split into main, workers and others; called by ``machine``.

Works on differences of ``/proc/PID/stat``, so the first reading of a process says nothing (None, never 0), unless it
was born after the reading before. What a child used after we last saw it arrives in its parent's account when it is
waited for; it is credited to the child's group then. Must never raise because a process is gone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cockpit.sensors.procfs import Stat, read_stat

MAIN, WORKERS, OTHERS = "main", "workers", "others"
WORKER_NAME = "pt_data_worker"
"""What torch names its loader workers: so new ones count as workers before the probe has reported them."""


@dataclass(frozen=True)
class TreeReading:
    """Cores used by each group since the reading before (1.0 = one core busy all the time); None: not measured.

    A group without processes uses 0.0. ``unseen_s`` sums, since the start, CPU seconds of children that came and
    went between two readings: nobody can say when they were used, so they stand in no rate.
    """

    main: float | None = None
    workers: float | None = None
    others: float | None = None
    unseen_s: float = 0.0
    worker_pids: tuple[int, ...] = ()


@dataclass
class Account:
    """One process as last read, and what it is still to be paid for children that have ended since.

    ``owed`` counts such children, ``owed_ticks`` what they had used when we last saw them, ``owed_reads`` how long
    that has been waiting: a parent that never waits for its children never gets it.
    """

    stat: Stat
    group: str
    owed: int = 0
    owed_ticks: int = 0
    owed_group: str = OTHERS
    owed_reads: int = 0


OWED_READS_AT_MOST = 5


class TreeCpu:
    """Keeps the last state of each process. ``proc`` is the folder to read, ``ticks_per_s`` the kernel's clock."""

    def __init__(self, proc: Path, ticks_per_s: int | None = None) -> None:
        self._proc = proc
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._accounts: dict[int, Account] = {}
        self._read_at_s: float | None = None
        self._read_at_boot_s = 0.0
        self._unseen_ticks = 0

    def read(
        self,
        now_s: float,
        boot_s: float,
        main_pid: int,
        worker_pids: Collection[int],
        other_pids: Collection[int],
    ) -> TreeReading:
        """Cores used since the call before. ``now_s`` may be any clock; ``boot_s`` is seconds since boot."""
        span_s = None if self._read_at_s is None else now_s - self._read_at_s
        groups = dict.fromkeys(other_pids, OTHERS) | dict.fromkeys(worker_pids, WORKERS) | {main_pid: MAIN}
        stats = self._read_stats(groups)
        used: dict[str, int] = {}
        if span_s is not None and span_s > 0:
            self._add_own(used, stats, groups)
            self._add_ended(used, stats, limit_ticks=span_s * self._ticks_per_s * (os.cpu_count() or 1))
        self._keep(stats, groups)
        self._read_at_s, self._read_at_boot_s = now_s, boot_s
        return self._rates(used, groups, stats, span_s)

    def _read_stats(self, groups: dict[int, str]) -> dict[int, Stat]:
        # Parents (older) before children: a child found alive has then not yet been paid into its parent's account.
        order = sorted(groups, key=lambda pid: self._started(pid))
        stats = {pid: stat for pid in order if (stat := read_stat(self._proc, pid)) is not None}
        for pid, stat in stats.items():
            if groups[pid] == OTHERS and stat.name == WORKER_NAME:
                groups[pid] = WORKERS
        return stats

    def _started(self, pid: int) -> tuple[float, int]:
        account = self._accounts.get(pid)
        return (account.stat.started_ticks if account else float("inf"), pid)

    def _add_own(self, used: dict[str, int], stats: Mapping[int, Stat], groups: Mapping[int, str]) -> None:
        for pid, stat in stats.items():
            account = self._accounts.get(pid)
            if account is not None and account.stat.started_ticks == stat.started_ticks:
                before = account.stat.own_ticks
            elif stat.started_ticks >= self._read_at_boot_s * self._ticks_per_s:
                before = 0  # born since the reading before: all it used belongs to this span
            else:
                continue
            used[groups[pid]] = used.get(groups[pid], 0) + max(0, stat.own_ticks - before)

    def _add_ended(self, used: dict[str, int], stats: Mapping[int, Stat], limit_ticks: float) -> None:
        """Credit what ended children used after we last saw them, found as growth of their parents' accounts."""
        for pid, account in self._accounts.items():
            parent = self._accounts.get(account.stat.parent)
            if parent is not None and not is_same(stats.get(pid), account.stat):
                parent.owed += 1
                parent.owed_ticks += account.stat.own_ticks + account.stat.ended_ticks
                parent.owed_group, parent.owed_reads = account.group, 0
        for pid, account in self._accounts.items():
            stat = stats.get(pid)
            if stat is None or not is_same(stat, account.stat):
                continue
            paid = stat.ended_ticks - account.stat.ended_ticks
            rest = paid - account.owed_ticks
            if paid > 0 and rest >= 0:
                # more than all cores can give in the span cannot all be from it
                if account.owed and rest <= limit_ticks:
                    used[account.owed_group] = used.get(account.owed_group, 0) + rest
                else:
                    self._unseen_ticks += rest
                account.owed = account.owed_ticks = 0
            elif paid > 0:
                account.owed_ticks -= paid
            account.owed_reads += 1
            if account.owed_reads > OWED_READS_AT_MOST:
                account.owed = account.owed_ticks = 0

    def _keep(self, stats: Mapping[int, Stat], groups: Mapping[int, str]) -> None:
        kept: dict[int, Account] = {}
        for pid, stat in stats.items():
            account = self._accounts.get(pid)
            if account is None or not is_same(stat, account.stat):
                account = Account(stat, groups[pid])
            account.stat, account.group = stat, groups[pid]
            kept[pid] = account
        self._accounts = kept

    def _rates(
        self,
        used: Mapping[str, int],
        groups: Mapping[int, str],
        stats: Mapping[int, Stat],
        span_s: float | None,
    ) -> TreeReading:
        alive = {groups[pid] for pid in stats}
        rates: dict[str, float | None] = {MAIN: None, WORKERS: None, OTHERS: None}
        if span_s is not None and span_s > 0:
            for group in rates:
                if group in used:
                    rates[group] = used[group] / self._ticks_per_s / span_s
                elif group != MAIN and group not in alive:
                    rates[group] = 0.0
        return TreeReading(
            main=rates[MAIN],
            workers=rates[WORKERS],
            others=rates[OTHERS],
            unseen_s=self._unseen_ticks / self._ticks_per_s,
            worker_pids=tuple(sorted(pid for pid in stats if groups[pid] == WORKERS)),
        )


def is_same(now: Stat | None, before: Stat) -> bool:
    """Whether the pid still means the same process."""
    return now is not None and now.started_ticks == before.started_ticks

"""The two lines under the chart: the cores that this job really has, and the loader's workers and queue. Pure.

Called by the frame; with several ranks a third line says how each of them fares. What is told of the GPU is in ``gpu``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cockpit.history.gpu import uses_gpu
from cockpit.history.knobs import training_loaders
from cockpit.history.state import State
from cockpit.model.counts import counted, noun
from cockpit.model.events import Sampled
from cockpit.model.ranks import RankInfo

from .clean import clean
from .footer import wrapped
from .format import cores, rate, seconds
from .glyphs import Glyphs
from .rows import Row, Run, cut, fit, row, spread, width_of
from .view import View


def cores_row(view: View, width: int, label: int) -> Row:
    """One column a usable core, and who keeps them busy: ``1.7 of 2 busy: main 0.9 workers 0.8 others 0.0``."""
    latest, machine = view.known.latest, view.known.machine
    left: list[Run] = [("cores".ljust(label), "dim")]
    if latest is None or machine is None:
        return fit([*left, ("not measured yet", "faint")], width)
    busy, parts, word = busy_cores(latest, machine.cpus_usable)
    usable = f"{machine.cpus_usable:.1f}".removesuffix(".0")
    tail: list[Run] = [(cores(busy), "bold"), (f" of {usable} {word}:", "dim")]
    for name, part in parts:
        tail += [(f" {name} ", "dim"), (cores(part), "text")]
    room = width - label - width_of(tail) - 1
    return spread([*left, (columns_of(latest.cores_busy, room, view.glyphs), "cpu")], tail, width)


Parts = list[tuple[str, float | None]]


def busy_cores(latest: Sampled, usable: float) -> tuple[float | None, Parts, str]:
    """Cores in use in all, who uses them, and the word for it.

    ``main``, ``workers`` and ``others`` are the run's own. Where the usable cores can be told apart, ``rest``
    is whoever else keeps them busy; where a quota counts instead, other people's work does not use ours up.
    """
    parts: Parts = [("main", latest.cpu_main), ("workers", latest.cpu_workers), ("others", latest.cpu_others)]
    known = [part for _, part in parts if part is not None]
    mine = sum(known) if known else None
    if not latest.cores_busy or len(latest.cores_busy) > usable + 0.5:
        return mine, parts, "used"
    busy = max(sum(latest.cores_busy), mine or 0.0)
    return busy, [*parts, ("rest", None if mine is None else busy - mine)], "busy"


def columns_of(busy: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """Each core as a column: two cells and a space where there is room, one cell, else means of neighbours."""
    if not busy or width <= 0:
        return ""
    top = len(glyphs.core) - 1
    levels = [round(max(0.0, min(1.0, share)) * top) if math.isfinite(share) else 0 for share in busy]
    if len(levels) * 3 - 1 <= width:
        return " ".join(glyphs.core[level] * 2 for level in levels)
    if len(levels) <= width:
        return "".join(glyphs.core[level] for level in levels)
    groups = [levels[at * len(levels) // width : (at + 1) * len(levels) // width] for at in range(width)]
    return "".join(glyphs.core[round(sum(group) / len(group))] for group in groups if group)


def loader_row(view: View, width: int, label: int) -> Row:
    """The training loader: where the script made it, its workers, what is ready, how long an epoch takes to start."""
    state = view.known
    choices = (words,) if (words := compile_words(state)) else no_gpu_words(state)
    lost: list[Run] = [(f"{counted(state.events_dropped, 'message')} lost ", "alarm")] if state.events_dropped else []
    left: list[Run] = [("loader".ljust(label), "dim"), *_loader_runs(view)]
    room = width - width_of(left) - 2
    told = next((words for words in choices if width_of(lost) + len(words) <= room), "")
    return spread(left, [*(lost if width_of(lost) <= room else []), (told, "dim")], width)


def _loader_runs(view: View) -> list[Run]:
    state, glyphs = view.known, view.glyphs
    found = training_loaders(state)
    if not found:
        return [("none seen yet", "faint")]
    if len(found) > 1:
        return [(cut(" + ".join(clean(loader.id) for loader in found), 60), "text")]
    loader = found[0]
    runs: list[Run] = [(cut(clean(loader.id), 24), "text")]
    runs += [(f" {glyphs.dot} ", "faint"), (f"{len(loader.workers)}", "text")]
    runs += [(f" {noun(len(loader.workers), 'worker')}", "dim")]
    queue = state.latest.queue if state.latest else None
    if loader.unfed:
        runs += [(f" {glyphs.dot} nothing is fetched any more", "dim")]
    elif loader.read_ahead:
        runs += [(f" {glyphs.dot} read ahead by another thread", "dim")]
    elif queue is not None and queue[1] > 0:
        runs += [(f" {glyphs.dot} ", "faint"), (f"{queue[0]}/{queue[1]}", "text"), (" ready", "dim")]
    if loader.epoch_start_ms is not None:
        runs += [(f" {glyphs.dot} ", "faint"), (f"start {loader.epoch_start_ms:.0f} ms", "dim")]
    return runs


def no_gpu_words(state: State) -> tuple[str, ...]:
    """Said once the training has made steps without one, whatever the machine has; in more words and in fewer."""
    return ("this training uses no GPU", "no GPU in use") if uses_gpu(state) is False else ()


PROBE_WORDS = 64
"""Columns of the reason why nothing is heard, where a chart would stand."""


def compile_words(state: State) -> str:
    """What compiling has cost so far, apart from every step; empty where nothing was compiled."""
    found = state.compiled
    if found is None or not found.graphs:
        return ""
    graphs = f"compiled {counted(found.graphs, 'graph')}"
    took = "" if found.total_s is None else f" in {seconds(found.total_s)}"
    return f"{graphs}{took}" + (f", {found.recompiles} of them again" if found.recompiles else "")


def ranks_rows(view: View, width: int, label: int, at_most: int) -> list[Row]:
    """How each rank fares, in one row: the slowest ones where not all of them fit; none for a training alone."""
    team = view.known.team
    if team is None or len(team.ranks) < 2 or at_most <= 0 or view.known.ended_s is not None:
        return []
    start: Run = ("ranks".ljust(label), "dim")
    whole = row(start, *_ranks_runs(view, team.ranks))
    if width_of(whole) <= width:
        return [fit(whole, width)]
    slowest = sorted(team.ranks, key=lambda one: (one.alive, one.samples_per_s or 0.0, one.rank))
    fitting = [
        each
        for shown in range(1, len(slowest))
        if width_of(each := row(start, *_ranks_runs(view, slowest[:shown]), _more(len(slowest) - shown))) <= width
    ]
    return [fit(fitting[-1] if fitting else whole, width)]


def _more(count: int) -> Run:
    return (f" and {count} faster", "dim")


def _ranks_runs(view: View, ranks: Sequence[RankInfo]) -> list[Run]:
    runs: list[Run] = []
    for one in ranks:
        runs += [(f" {view.glyphs.dot} ", "faint")] if runs else []
        runs.append((f"rank {one.rank} ", "dim"))
        if not one.alive:
            runs.append(("gone", "alarm"))
            continue
        waits = "" if one.wait_ms is None else f", waits {one.wait_ms:.0f} ms"
        runs += [(rate(one.samples_per_s), "text"), (f"/s{waits}", "dim")]
    return runs


def why_no_probe(state: State, now_s: float, expected_s: float) -> list[str]:
    """Likely reasons why nothing is heard from the training; empty while it is too early, or something is heard."""
    began = state.started_s
    if state.probe != "waiting" or state.phase != "running" or began is None or now_s - began < expected_s:
        return []
    if state.probe_reason:
        return ["Nothing heard from the training yet:", *wrapped(clean(state.probe_reason), PROBE_WORDS)]
    return [
        "Nothing heard from the training yet. Likely reasons:",
        "- it has not imported torch yet",
        "- its command replaces PYTHONPATH (write PYTHONPATH=.:$PYTHONPATH)",
        "- its Python runs with -I, -E or -S, or is older than 3.9",
        "- it runs in a container or on another machine",
    ]

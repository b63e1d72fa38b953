"""A run of several processes in words and JSON: who trains, whose the headline figures are, what cannot be asked for.

Derived from the state; read by status, report, progress, screen and the engine's verbs. With one process that trains
there is nothing to say, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cockpit.model.counts import noun
from cockpit.model.knobs import BY_NAME, SCRIPT, Value
from cockpit.model.ranks import NOT_YET, RankInfo, RanksSeen

from .state import State


def several(state: State) -> bool:
    """Whether more than one process trains now, here or by the word of the launcher."""
    alive = [rank for rank in state.team.ranks if rank.alive] if state.team else []
    return len(alive) > 1 or any((rank.world or 1) > 1 for rank in state.ranks)


def not_yet(state: State, knobs: Mapping[str, Value]) -> str | None:
    """Why these values cannot be asked for in this run; None where they can."""
    return refusal(knobs) if several(state) else None


def refusal(knobs: Mapping[str, Value]) -> str | None:
    """What several ranks cannot take of ``knobs``: all but the loader's. The way back to the script is always open."""
    others = [
        name for name, value in knobs.items() if name in BY_NAME and BY_NAME[name].room != "loader" and value != SCRIPT
    ]
    return f"{', '.join(others)}: {NOT_YET}" if others else None


def headline(state: State) -> str | None:
    """Whose the run's own figures are, as ``rank 0 of 2``; None where one process trains alone."""
    team = state.team
    if team is None:
        return None
    count = max(len(team.ranks), team.world or 1)
    lead = lead_of(team)
    return f"{lead.name} of {count}" if lead is not None and count > 1 else None


def lead_of(team: RanksSeen) -> RankInfo | None:
    """The rank whose figures are the run's: the lowest that lives, after the end the lowest."""
    return min(team.ranks, key=lambda rank: (not rank.alive, rank.rank), default=None)


def gone(state: State) -> tuple[RankInfo, ...]:
    """Ranks that have trained and are gone while the run goes on."""
    if state.team is None or state.phase in ("ended", "lost"):
        return ()
    return tuple(rank for rank in state.team.ranks if not rank.alive)


def lines(state: State, now_s: float) -> list[str]:
    """All ranks for people, one a line; empty where one process trains alone."""
    whose = headline(state)
    if whose is None or state.team is None:
        return []
    over = state.phase in ("ended", "lost")
    when = "" if over else f" (all ranks, as of {max(0.0, now_s - state.team.at_s):.0f} s ago)"
    return [f"the run's figures are those of {whose}{when}", *(_words(rank, over) for rank in state.team.ranks)]


def _words(rank: RankInfo, over: bool) -> str:
    """``rank 1: step 38, waits 1.2 ms a step, 40 samples/s``; – for what was not measured."""
    step = "–" if rank.step is None else str(rank.step)
    if over:
        return f"{rank.name}: {step} {noun(rank.step, 'step')}"
    if not rank.alive:
        return f"{rank.name}: gone, at step {step}"
    waits = "–" if rank.wait_ms is None else f"{rank.wait_ms:.1f}"
    per_s = "–" if rank.samples_per_s is None else f"{rank.samples_per_s:.3g}"
    return f"{rank.name}: step {step}, waits {waits} ms a step, {per_s} samples/s"


def rows(state: State, now_s: float, wait_ms: float | None, samples_per_s: float | None) -> list[dict[str, Any]]:
    """``status["ranks"]``: every process that trains; before one does, those that speak.

    ``age_s``: seconds since its figures were told; null where they are the run's own, or it is over.
    ``wait_ms`` and ``samples_per_s`` are the run's own: one process that trains alone has no others.
    """
    team = state.team
    own = {"step": state.step, "wait_ms": wait_ms, "samples_per_s": samples_per_s}
    if state.ended_s is not None:
        own = {"step": state.step}
    if team is None:
        alone = len(state.ranks) == 1
        return [_row(rank.rank, rank.pid, own if alone else {}) for rank in state.ranks]
    if len(team.ranks) == 1:
        return [_row(rank.rank, rank.pid, {**own, "alive": rank.alive}) for rank in team.ranks]
    return [
        _row(
            rank.rank,
            rank.pid,
            {
                "step": rank.step,
                "wait_ms": rank.wait_ms,
                "samples_per_s": rank.samples_per_s,
                "alive": rank.alive,
                "age_s": None if state.ended_s is not None else max(0.0, now_s - team.at_s),
            },
        )
        for rank in team.ranks
    ]


def _row(rank: int | None, pid: int, figures: dict[str, Any]) -> dict[str, Any]:
    unknown = dict.fromkeys(("step", "wait_ms", "samples_per_s", "age_s"))
    return {"rank": rank, "pid": pid, **unknown, "alive": True, **figures}


def last_step(state: State) -> int | None:
    """How far the run came: where several trained, how far the first of them did, whoever spoke last."""
    team = at_rest(state.team)
    lead = lead_of(team) if team is not None and len(team.ranks) > 1 else None
    return state.step if lead is None or lead.step is None else lead.step


def at_rest(team: RanksSeen | None) -> RanksSeen | None:
    """After the end: who they were and how far each came; nobody waits or makes a batch any more."""
    if team is None:
        return None
    return replace(team, ranks=tuple(RankInfo(rank.rank, rank.pid, rank.step, alive=False) for rank in team.ranks))

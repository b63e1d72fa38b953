"""What was compiled, and for which trial: folded apart from steps, since it is in no throughput and no phase.

Called by the fold; ``words`` by report and progress. A compilation belongs to the change that is coming into force,
else to the one in force: what torch compiles once more at the last, smaller batch of an epoch is its doing too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cockpit.model.compiled import CompiledSeen
from cockpit.model.counts import counted

from .state import Entry, State
from .trials import entry_of, with_entry

WORTH_SAYING_S = 0.05
JUST_NOW_S = 2.0
"""The probe tells of a change that came back, and of what it had compiled for it, in one breath."""


def seen(state: State, event: CompiledSeen) -> State:
    """The new totals, and what came to them in the trial that caused it."""
    before, state = state.compiled or CompiledSeen(event.at_s, 0.0, 0, 0), replace(state, compiled=event)
    more_s, graphs, recompiles = (
        _more(getattr(before, name), getattr(event, name)) for name in ("total_s", "graphs", "recompiles")
    )
    entry = _whose(state, event.at_s)
    if entry is None or not (more_s or graphs or recompiles):
        return state
    return with_entry(
        state,
        replace(
            entry,
            compiled_s=_sum(entry.compiled_s, more_s),
            graphs=_sum(entry.graphs, graphs),
            recompiles=_sum(entry.recompiles, recompiles),
        ),
    )


def _whose(state: State, at_s: float) -> Entry | None:
    for entry in reversed(state.ledger):
        if entry.state == "applying" or (entry.state == "rolled_back" and at_s - entry.state_s < JUST_NOW_S):
            return entry
    return entry_of(state, state.current.change)


def _more(before: float | None, after: float | None) -> Any:
    """None where not known, or where another process speaks now, whose count began apart."""
    return None if before is None or after is None or after < before else after - before


def _sum(known: float | None, more: Any) -> Any:
    return known if more is None else (known or 0) + more


def status(state: State) -> dict[str, Any]:
    """``status["compile"]``: the whole run's, null where not known."""
    found = state.compiled or CompiledSeen(state.at_s)
    return {"total_s": found.total_s, "graphs": found.graphs, "recompiles": found.recompiles}


def trial(entry: Entry) -> dict[str, Any] | None:
    """The same for one change; null where nothing was compiled for it."""
    if entry.compiled_s is None and entry.graphs is None:
        return None
    return {"total_s": entry.compiled_s, "graphs": entry.graphs, "recompiles": entry.recompiles}


def words(total_s: float | None, graphs: int | None, recompiles: int | None) -> str:
    """``compiled for 14 s, 2 graphs, 0 recompiles``; empty where nothing was compiled, or nobody could watch."""
    if not graphs and (total_s or 0.0) < WORTH_SAYING_S:
        return ""
    took = "compiled" if total_s is None else f"compiled for {total_s:.0f} s" if total_s >= 10 else _short(total_s)
    parts = [(graphs, "graph"), (recompiles, "recompile")]
    return ", ".join([took, *(counted(number, what) for number, what in parts if number is not None)])


def _short(total_s: float) -> str:
    return f"compiled for {total_s:.1f} s" if total_s >= 0.1 else "compiled for under 0.1 s"

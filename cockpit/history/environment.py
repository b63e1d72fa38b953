"""The environment of the training as far as people asked for it: what hot restarts and a setup's file have set. Pure.

Called by the fold where a restart lands; read by save, report, status and screen. It holds no value that nobody gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cockpit.model.environment import AS_BEGAN
from cockpit.model.knobs import ENV, UNSET, Value

from .state import Entry, State

Variables = Mapping[str, tuple["str | None", "str | None"]]


def from_start(given: Mapping[str, str | None] | None) -> Variables:
    """What a setup's file has set before anything ran."""
    return {name: (AS_BEGAN, value) for name, value in (given or {}).items()}


def landed(state: State, entry: Entry) -> State:
    """A restart has come into force; what the script has overruled in it is not."""
    return _moved(state, entry, 1)


def rolled_back(state: State, entry: Entry) -> State:
    """One that had landed has come back."""
    return _moved(state, entry, 0)


def _moved(state: State, entry: Entry, side: int) -> State:
    known = dict(state.environment or {})
    for name, pair in (entry.change or {}).items():
        if not name.startswith(ENV) or (side and pair[1] != _plain(entry.asked.get(name))):
            continue
        short = name[len(ENV) :]
        began = known[short][0] if short in known else _text(pair[0])
        now = _text(pair[side])
        known.pop(short, None)
        if now != began:
            known[short] = (began, now)
    return replace(state, environment=known) if known != (state.environment or {}) else state


def left(state: State, env: Mapping[str, str | None]) -> Variables:
    """Where a process begins anew: the same as before, or as it was before a change that is taken back."""
    known = state.environment or {}
    return {name: (known[name][0], now) for name, now in env.items() if name in known and known[name][0] != now}


def _plain(value: Value | None) -> Value | None:
    return None if value == UNSET else value


def _text(value: Value | None) -> str | None:
    value = _plain(value)
    return None if value is None else str(value)


def tuned_environment(state: State) -> dict[str, str | None]:
    """Variables as they were asked for and are in force, as a setup's file has them; None: one that was taken away."""
    return {name: now for name, (_, now) in (state.environment or {}).items() if now != AS_BEGAN}

"""Under what name the training reports to a tracker of experiments, so that a later process can go on under it.

Looks, now and then and from the probe's own thread, at what the script has already begun: it imports nothing, calls
nothing that could talk to anybody, and changes nothing. Who has begun several runs in one process is not followed: one
name would be wrong for the others.
"""

from __future__ import annotations

import sys
from typing import Any

from .guard import attempt

EVERY_NS = 1_000_000_000
ID = "{id}"


class Identity:
    """``env``: variables by which a process goes on under the present name; empty where there is none, or several."""

    def __init__(self) -> None:
        self._due_ns = 0
        self._seen: dict[str, list[str]] = {name: [] for name in _TRACKERS}
        self._told: dict[str, str] = {}

    @property
    def env(self) -> dict[str, str]:
        """As a process is to be started with it."""
        found: dict[str, str] = {}
        for name, known in self._seen.items():
            if len(known) == 1:
                found.update({variable: value.replace(ID, known[0]) for variable, value in _TRACKERS[name][1].items()})
        return found

    def look(self, now_ns: int) -> dict[str, Any] | None:
        """What the engine is to know, where that is news."""
        if now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + EVERY_NS
        for name, (read, _) in _TRACKERS.items():
            found, _ = attempt(read)
            for each in found or ():
                if each not in self._seen[name]:
                    self._seen[name].append(each)
        told = self.env
        if told == self._told:
            return None
        self._told = told
        return self.message()

    def message(self) -> dict[str, Any]:
        """For an engine, also one that is new."""
        return {"m": "identity", "env": dict(self._told)}

    def last_words(self) -> list[dict[str, Any]]:
        """Begins a connection with it, where there is any."""
        return [self.message()] if self._told else []


def _named(module: str, name: str) -> Any:
    """What a module calls so, if it is there. One that is to be imported when it is first used is not asked: that would
    import it, in our thread."""
    found = sys.modules.get(module)
    return None if found is None else object.__getattribute__(found, "__dict__").get(name)


def _wandb() -> list[str]:
    settings = getattr(_named("wandb", "run"), "_settings", None)
    return _texts(getattr(settings, "run_id", None))


def _mlflow() -> list[str]:
    stack = _named("mlflow.tracking.fluent", "_active_run_stack")
    every = getattr(stack, "get_all_thread_values", None)
    stacks = [stack] if every is None else list(every().values())
    # the outermost: what is nested in it begins anew each time
    return [run for runs in stacks if runs for run in _texts(runs[0].info.run_id)]


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []


_TRACKERS: dict[str, tuple[Any, dict[str, str]]] = {
    "wandb": (_wandb, {"WANDB_RUN_ID": ID, "WANDB_RESUME": "allow"}),
    "mlflow": (_mlflow, {"MLFLOW_RUN_ID": ID}),
}
"""By module: what reads the ids of its runs, and the variables by which it goes on with one."""

"""The environment of a run's next process, worked out from that of the present one and what was asked for. Pure.

Called by ``restart_plan``. A value that nobody gave is told to nobody: ledger and files say that it was as it began,
and the value itself goes from process to process in a variable of ours, so that an undo can put it back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.model.environment import AS_BEGAN, PLAIN
from cockpit.model.names import ENV_LIFE, ENV_WARM, ENV_WAS

Known = Mapping[str, tuple["str | None", "str | None"]]
"""By name: what a variable was when the run began, and what was asked for and is in force."""


@dataclass(frozen=True)
class Next:
    """``asked`` and ``before`` by name, as they may be told (None: not set); ``environ`` is whole, and is not."""

    asked: Mapping[str, str | None]
    before: Mapping[str, str | None]
    environ: Mapping[str, str]


def next_of(known: Known, environ: Mapping[str, str], env: Mapping[str, str | None], inject: str) -> Next:
    """What differs from ``environ`` once ``env`` is asked for; nothing is asked that is so already."""
    plain = {name: value for name, value in environ.items() if name not in (ENV_LIFE, ENV_WARM)}
    asked: dict[str, str | None] = {}
    before: dict[str, str | None] = {}
    for name, value in env.items():
        old = theirs(name, environ.get(name), inject)
        new = environ.get(ENV_WAS + name) if value == AS_BEGAN else value
        lost = value == AS_BEGAN and new is None and known.get(name, (AS_BEGAN, None))[0] == AS_BEGAN
        if old == new or lost:  # where nobody knows any more what it was, it stays as it is
            continue
        asked[name] = AS_BEGAN if value == AS_BEGAN and new is not None else new
        before[name] = told(known, name, old)
        _put(plain, name, new, inject)
        plain.pop(ENV_WAS + name, None)
        if before[name] == AS_BEGAN and old is not None:
            plain[ENV_WAS + name] = old
        elif value != AS_BEGAN and ENV_WAS + name in environ:
            plain[ENV_WAS + name] = environ[ENV_WAS + name]
    return Next(asked, before, plain)


def _put(environ: dict[str, str], name: str, value: str | None, inject: str) -> None:
    environ.pop(name, None)
    if name == "PYTHONPATH":
        environ[name] = os.pathsep.join([inject, *([value] if value else [])])
    elif value is not None:
        environ[name] = value


def theirs(name: str, value: str | None, inject: str) -> str | None:
    """As the person set it: our own folder in front of it is none of theirs."""
    if name != "PYTHONPATH" or value is None:
        return value
    return os.pathsep.join(folder for folder in value.split(os.pathsep) if folder != inject) or None


def told(known: Known, name: str, value: str | None) -> str | None:
    """``value`` as it may be shown and written down."""
    given = name in PLAIN or (name in known and known[name][1] == value)
    return value if value is None or given else AS_BEGAN

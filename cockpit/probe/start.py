"""How the process began: the setup and schedule in the run's data folder, whether it is a child. Read by the probe.

A life after the first has a start.json of its own: what was in force when it took over. It must never fail: a folder
that is gone says nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from typing import Any

from ..model.names import ENV_LIFE, START_FILE


def told(folder: str) -> dict[str, Any]:
    """What start.json says, of this life or in the run's data folder; nothing where there is none."""
    folder = os.environ.get(ENV_LIFE) or folder
    try:
        with open(os.path.join(folder, START_FILE), encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def is_child() -> bool:
    """Whether multiprocessing made this process; a spawned one imports the script before it knows its parent."""
    inheriting = getattr(multiprocessing.current_process(), "_inheriting", False)
    return bool(inheriting) or multiprocessing.parent_process() is not None

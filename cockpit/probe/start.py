"""What the run's data folder says before the first message: the setup from the start, the schedule. Read by the probe.

It must never fail: a folder that is gone says nothing.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ..model.names import START_FILE


def told(folder: str) -> dict[str, Any]:
    """What start.json in the run's data folder says; nothing where there is none."""
    try:
        with open(os.path.join(folder, START_FILE), encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}

"""What is asked of the roots of a training, and what could not be kept of it. Frozen values, made by ``root``."""

from __future__ import annotations

from typing import NamedTuple

from ...model.knobs import SCRIPT


class Setting(NamedTuple):
    """What was asked for, ``script`` where nothing was."""

    autocast: str = SCRIPT
    compile: str = SCRIPT


class RolledBack(NamedTuple):
    """``failed`` could not be kept; ``setting`` is in force instead, and why."""

    failed: Setting
    setting: Setting
    reason: str

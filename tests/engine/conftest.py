"""Runs for the engine's tests, swept away at the end of each test."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_runs import REPO, Started

from cockpit.engine.start import Spec, start_run


@pytest.fixture
def start(state_dir: Path, tmp_path: Path) -> Callable[..., Started]:
    """Start a command as a run; keyword arguments as in ``Spec``."""
    environ = {**os.environ, "PYTHONPATH": str(REPO)}

    def begin(words: list[str], **more: Any) -> Started:
        spec = Spec(words, is_script=False, state_dir=state_dir, cwd=tmp_path, environ=environ, **more)
        return Started(start_run(spec))

    return begin

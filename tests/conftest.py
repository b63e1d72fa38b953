"""Shared by all tests: where the package and the shared test code are, the trainers, a swept folder for runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent, HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def trainers() -> Path:
    """The folder of small real trainings that have never heard of cockpit."""
    return HERE / "trainers"


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder for runs; whatever process still names it at the end of the test is killed."""
    from support.under import sweep

    yield tmp_path
    sweep(tmp_path)

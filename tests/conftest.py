"""Shared by all tests: where the package and the shared test code are, the trainers, a swept folder for runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent, HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

# what started us (nohup, a background job) may have us ignore these; a bare run would inherit that, and a training
# under the cockpit, which begins with default signals, would rightly differ
for number, plain in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler),
                      (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_DFL)):  # fmt: skip
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, plain)


class Together(LoadScopeScheduling):
    """Side by side, those that look at the pool's runs stay together, and so does each other file."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/e2e" if nodeid.startswith("tests/e2e/") else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """What xdist gives to which of its processes."""
    return Together(config, log)


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

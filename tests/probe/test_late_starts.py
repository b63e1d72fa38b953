"""A worker that comes up as its training is gone sees that: real processes, the training killed before its time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cockpit.probe import late_starts
from cockpit.probe.orphans import lives

HERE = Path(__file__).resolve()


def come_up(folder: Path) -> None:
    """In the worker: as torch's loop does it, once the test says so."""
    (folder / "up").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(0.01)
    watchdog = SimpleNamespace(manager_dead=False)
    late_starts.left(late_starts.entering(watchdog), None, None)
    (folder / "saw.new").write_text(str(watchdog.manager_dead))
    (folder / "saw.new").replace(folder / "saw")


def start(folder: Path, method: str) -> None:
    """In the training."""
    worker = multiprocessing.get_context(method).Process(target=come_up, args=(folder,), daemon=True)
    worker.start()
    worker.join()


def text_of(file: Path) -> str:
    until_s = time.monotonic() + 20
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < until_s, file
        time.sleep(0.01)
    return file.read_text()


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("killed", [True, False])
def test_it_sees_whether_who_started_it_is_gone(tmp_path: Path, method: str, killed: bool) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[2]), str(HERE.parent)])}
    code = "import pathlib, sys, test_late_starts as here; here.start(pathlib.Path(sys.argv[1]), sys.argv[2])"
    training = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), method], env=env)
    try:
        worker = int(text_of(tmp_path / "up"))
        if killed:
            training.kill()
            training.wait()
        (tmp_path / "go").touch()
        assert text_of(tmp_path / "saw") == str(killed)
    finally:
        training.kill()
        training.wait()
        if lives(worker):
            os.kill(worker, signal.SIGKILL)


def test_a_process_that_nobody_started_as_a_worker_is_not_meant() -> None:
    watchdog = SimpleNamespace(manager_dead=False)
    late_starts.left(watchdog, None, None)
    assert not watchdog.manager_dead

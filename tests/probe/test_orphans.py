"""What workers of ours start themselves ends with them; what anybody else starts, or has let go of, is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from probe import swap_scenes as scenes
from probe.swap_harness import Harness
from torch.utils.data import DataLoader, get_worker_info

from cockpit.model.names import ENV_WORKER
from cockpit.probe import orphans
from cockpit.probe.handles import send

NESTED = "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); time.sleep(300)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"


class WithHelpers(scenes.Squares):
    """Each process that loads keeps one of its own, and writes down which."""

    def __init__(self, folder: Path, command: list[str], **more: Any) -> None:
        self.folder, self.command, self.more, self.owner = folder, command, more, 0

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.owner != os.getpid():
            self.owner = os.getpid()
            helper = subprocess.Popen(self.command, **self.more)
            (self.folder / str(helper.pid)).touch()
            time.sleep(0.2)  # until it has come up
        return super().__getitem__(index)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    orphans._told.clear()
    yield tmp_path
    for pid in begun(tmp_path):
        for each in (pid, *orphans._children(pid)):
            if orphans.lives(each):
                os.kill(each, signal.SIGKILL)
    assert not living(tmp_path)


def begun(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir()]


def living(folder: Path, expected: set[int] | None = None, wait_s: float = 2.0) -> set[int]:
    """Those that live on after they have had time to end."""
    until_s = time.monotonic() + wait_s
    while (left := {pid for pid in begun(folder) if orphans.lives(pid)}) != (expected or set()):
        if time.monotonic() > until_s:
            break
        time.sleep(0.01)
    return left


def epochs(loader: Any, number: int = 2) -> None:
    for _ in range(number):
        for _ in loader:
            pass


SLEEP = ["sleep", "300"]


@pytest.mark.parametrize(
    ("boundary", "now", "helpers"),
    [
        ({0: {"num_workers": 2}}, {}, 4),
        ({0: {"num_workers": 2, "persistent_workers": True}, 2: {"num_workers": 0}}, {}, 3),
        ({0: {"num_workers": 2}, 1: {"num_workers": 0}}, {(0, 3): {"num_workers": 1}}, 4),
    ],
    ids=["each epoch", "persistent", "a swap"],
)
def test_they_end_with_the_workers(folder: Path, boundary: Any, now: Any, helpers: int) -> None:
    data = WithHelpers(folder, SLEEP)
    data.owner = os.getpid() if helpers == 4 and not now else 0
    loader = DataLoader(data, batch_size=scenes.BATCH)
    with Harness(boundary, now):
        epochs(loader, 3 if helpers == 3 else 2)
    del loader
    mine = set(orphans._children(os.getpid())) & set(begun(folder))
    assert len(begun(folder)) == helpers
    assert living(folder, mine) == mine  # the training's own stays


def test_what_they_have_started_in_turn_ends_too(folder: Path) -> None:
    loader = DataLoader(WithHelpers(folder, [sys.executable, "-c", NESTED]), batch_size=scenes.BATCH)
    with Harness({0: {"num_workers": 1}}):
        first = iter(loader)
        next(first)
        (helper,) = begun(folder)
        until_s = time.monotonic() + 5
        while not (below := orphans._children(helper)) and time.monotonic() < until_s:
            time.sleep(0.01)
        (folder / str(below[0])).touch()
        del first
    assert not living(folder)


def test_one_that_does_not_mind_is_killed_some_beats_later(folder: Path, monkeypatch: Any) -> None:
    loader = DataLoader(WithHelpers(folder, [sys.executable, "-c", DEAF]), batch_size=scenes.BATCH)
    with Harness({0: {"num_workers": 1}}):
        epochs(loader, 1)
    assert len(living(folder, wait_s=0.3)) == 1
    orphans.beat(orphans.SOFT_S - 1)
    assert len(living(folder, wait_s=0.1)) == 1
    orphans.beat(1.0)
    assert not living(folder) and not orphans._told


def test_those_of_the_scripts_own_workers_are_the_scripts(folder: Path) -> None:
    loader = DataLoader(WithHelpers(folder, SLEEP), batch_size=scenes.BATCH, num_workers=2)
    with Harness({1: {"num_workers": 1}}):
        epochs(loader, 1)
        own = set(begun(folder))
        epochs(loader, 1)
    assert len(own) == 2 and len(begun(folder)) == 3
    assert living(folder, own) == own


class Dying(WithHelpers):
    """Once all workers have a helper, one of them dies in one way or another."""

    def __init__(self, folder: Path, command: list[str], how: str, **more: Any) -> None:
        super().__init__(folder, command, **more)
        self.how = how

    def __getitem__(self, index: int) -> torch.Tensor:
        row = super().__getitem__(index)
        if get_worker_info() is not None and index == 15:
            os._exit(3) if self.how == "leaves" else os.kill(os.getpid(), signal.SIGKILL)
        return row


def bearing(harness: Harness) -> Any:
    """What the probe does in a worker that has just been forked."""
    making = harness.mechanism

    def begun(_: int) -> None:
        if making.making is not None:
            orphans.bear(making.making.mark)

    return begun


@pytest.mark.parametrize("how", ["killed", "leaves"])
@pytest.mark.parametrize("command", [SLEEP, [sys.executable, "-c", NESTED]], ids=["one", "nested"])
def test_they_end_when_a_worker_was_killed_too(folder: Path, how: str, command: list[str]) -> None:
    """It is dead before anybody could see what it had started: whose children they were is known by their mark."""
    data = Dying(folder, command, how)
    data.owner = os.getpid()
    with Harness({}, {(0, 1): {"num_workers": 2}}) as harness:
        loader = DataLoader(data, batch_size=scenes.BATCH, worker_init_fn=bearing(harness))
        epochs(loader, 1)
        assert harness.notices
    for helper in begun(folder):
        for below in orphans._children(helper):
            (folder / str(below)).touch()
    assert len(begun(folder)) >= 2 and not living(folder)


def test_a_helper_with_a_session_of_its_own_outlives_a_killed_worker(folder: Path) -> None:
    data = Dying(folder, SLEEP, "killed", start_new_session=True)
    data.owner = os.getpid()
    with Harness({}, {(0, 1): {"num_workers": 1}}) as harness:
        epochs(DataLoader(data, batch_size=scenes.BATCH, worker_init_fn=bearing(harness)), 1)
    assert living(folder, wait_s=0.3) == set(begun(folder)) and not orphans._told


def test_what_a_killed_worker_of_the_scripts_own_has_started_is_the_scripts(folder: Path) -> None:
    """Another source's mark, or none, is never meant, even beside one of ours that dies."""
    other = subprocess.Popen(SLEEP, env={**os.environ, ENV_WORKER: orphans.new_mark()})
    (folder / str(other.pid)).touch()
    data = Dying(folder, SLEEP, "killed")
    data.owner = os.getpid()
    child = os.fork()
    if child == 0:
        # torch raises its error at any SIGCHLD from then on, again and again: nothing for the process of the tests
        try:
            with Harness() as harness:
                epochs(DataLoader(data, scenes.BATCH, num_workers=1, worker_init_fn=bearing(harness)), 1)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    data.owner = os.getpid()
    assert living(folder, set(begun(folder)), wait_s=0.3) == set(begun(folder)) and len(begun(folder)) == 2
    with Harness({}, {(0, 1): {"num_workers": 1}}) as harness:
        epochs(DataLoader(data, batch_size=scenes.BATCH, worker_init_fn=bearing(harness)), 1)
        assert harness.notices
    assert len(begun(folder)) == 3 and len(living(folder, wait_s=0.5)) == 2
    other.kill()
    other.wait()


def test_a_worker_bears_the_mark_of_its_source_from_its_fork_on(it: Any) -> None:
    read, write = os.pipe()
    it.probe.mechanism.making = SimpleNamespace(mark="this", _worker_result_queue=SimpleNamespace())
    pid = os.fork()
    if pid == 0:
        it.probe.in_child()
        os.write(write, os.environ.get(ENV_WORKER, "").encode())
        os._exit(0)
    it.probe.mechanism.making = None
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"this" and ENV_WORKER not in os.environ
    for end in (read, write):
        os.close(end)


def test_what_has_let_go_of_its_worker_is_meant_to_stay(folder: Path) -> None:
    loader = DataLoader(WithHelpers(folder, SLEEP, start_new_session=True), batch_size=scenes.BATCH)
    with Harness({0: {"num_workers": 1}}):
        epochs(loader, 1)
    assert living(folder, wait_s=0.3) == set(begun(folder)) and not orphans._told


@pytest.mark.parametrize("servant", [name.decode() for name in orphans.SERVANTS])
def test_who_serves_other_processes_ends_by_itself(folder: Path, servant: str) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(300)", servant]
    loader = DataLoader(WithHelpers(folder, command), batch_size=scenes.BATCH)
    with Harness({0: {"num_workers": 1}}):
        epochs(loader, 1)
    assert living(folder, wait_s=0.3) == set(begun(folder)) and not orphans._told


def test_a_later_process_with_the_same_pid_is_never_meant() -> None:
    other = subprocess.Popen(SLEEP)
    begun = int(orphans._fields(other.pid)[19])
    assert not send(other.pid, signal.SIGKILL, lambda: orphans.lives(other.pid, begun - 1))
    assert other.poll() is None
    assert send(other.pid, signal.SIGKILL, lambda: orphans.lives(other.pid, begun))
    assert other.wait(10) == -signal.SIGKILL

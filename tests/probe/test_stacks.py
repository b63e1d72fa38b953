"""Stacks on request: what is said of each thread and worker, and that nobody is asked who could take it amiss."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.probe.stacks import BEATS, FRAMES, Stacks, lines_of, threads_now
from cockpit.probe.worker_stacks import SIGNAL, Question, _is_taken, _place, question, ready, state_of


def until(check: Any) -> None:
    end = time.monotonic() + 20
    while not check() and time.monotonic() < end:
        time.sleep(0.01)
    assert check()


def stacks(workers: tuple[int, ...] = (), ours: tuple[int, ...] = ()) -> Stacks:
    recorder = SimpleNamespace(thread=threading.get_ident(), doing="loader_start", since=0)
    registry = SimpleNamespace(records={"train.py:1": SimpleNamespace(workers=workers)})
    return Stacks(recorder, registry, SimpleNamespace(pids=lambda: set(ours)))  # type: ignore[arg-type]


def asked_beside(told: Stacks) -> Any:
    """The answer, asked for from another thread, as the probe's own does."""
    found: list[Any] = []

    def beats() -> None:
        told.receive({"m": "dump", "id": "d1"})
        for _ in range(BEATS):
            found.append(told.beat(2_500_000_000))
            time.sleep(0.01)

    beside = threading.Thread(target=beats, name="beside")
    beside.start()
    beside.join()
    return next(answer for answer in found if answer is not None)


def test_the_thread_that_trains_comes_first_and_says_what_it_does() -> None:
    answer = asked_beside(stacks())
    assert (answer["m"], answer["id"], answer["pid"]) == ("stacks", "d1", os.getpid())
    title, lines = answer["parts"][0]
    assert title.startswith("thread MainThread") and title.endswith("which trains: loader start for 2.5 s")
    assert any("test_stacks.py" in line and "asked_beside" in line for line in lines)
    assert not any("beside (" in title for title, _ in answer["parts"])  # who looks is not looked at


def test_nothing_is_said_unasked() -> None:
    told = stacks()
    told.receive({"m": "ask", "id": "c1"})
    assert told.beat(0) is None


def test_a_deep_stack_is_cut() -> None:
    def deep(left: int) -> list[str]:
        return deep(left - 1) if left else lines_of(sys._getframe())

    lines = deep(3 * FRAMES)
    assert len(lines) == FRAMES + 1 and lines[-1] == "…" and "deep" in lines[0]


def test_threads_without_a_name_are_told_too() -> None:
    go = threading.Event()
    import _thread

    _thread.start_new_thread(go.wait, ())
    try:
        until(lambda: any(title.startswith("thread of foreign making") for title, _ in threads_now(None, "other", 0.0)))
    finally:
        go.set()


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Another process that has never heard of the signal."""
    process = subprocess.Popen(["sleep", "60"])
    until(lambda: state_of(process.pid).startswith("waiting"))  # it is still being started: the kernel says "running"
    yield process.pid
    process.kill()
    process.wait()


def test_a_worker_of_the_script_is_never_signalled(sleeper: int) -> None:
    title, lines = asked_beside(stacks(workers=(sleeper,)))["parts"][-1]
    assert title.startswith(f"worker {sleeper}, waiting") and "the script's own worker" in title and lines == []
    os.kill(sleeper, 0)


def test_a_worker_that_has_ended_meanwhile_is_not_told_of() -> None:
    assert not any(title.startswith("worker") for title, _ in asked_beside(stacks(workers=(2**22 + 1,)))["parts"])


def test_a_worker_that_cannot_answer_is_not_signalled_either(sleeper: int) -> None:
    title, lines = question(sleeper, ours=True).answer()
    assert "cannot be asked" in str(title) and lines == []
    time.sleep(0.05)
    assert subprocess.run(["ps", "-o", "stat=", "-p", str(sleeper)], capture_output=True).stdout.strip()  # still there


def forked(ready_first: bool, then: Any) -> int:
    pid = os.fork()
    if not pid:
        if ready_first:
            ready()
        then()
        os._exit(0)
    return pid


def in_the_child() -> None:
    time.sleep(60)


def test_a_worker_of_ours_answers_again_and_again_and_lives_on() -> None:
    pid = forked(True, in_the_child)
    try:
        until(lambda: _place(pid) and _is_taken(pid))
        for _ in range(2):
            asked = question(pid, ours=True)
            until(lambda asked=asked: not asked.is_open())
            title, lines = asked.answer()
            assert any("in_the_child" in str(line) for line in lines), (title, lines)
            assert sum("in_the_child" in str(line) for line in lines) == 1  # this answer, not the one before
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_an_answer_that_stops_in_the_middle_is_waited_for(tmp_path: Any) -> None:
    place = tmp_path / "answer"
    place.write_text('Thread 0x1 (most recent call first):\n  File "a.py", line 1 in _serve\n')
    asked = Question(os.getpid(), None, str(place))
    assert [asked.is_open() for _ in range(3)] == [True] * 3
    with place.open("a") as more:
        more.write('\nCurrent thread 0x2 (most recent call first):\n  File "train.py", line 9 in <module>\n')
    assert [asked.is_open() for _ in range(3)] == [True, False, False]
    assert "train.py" in str(asked.answer()[1])


def test_a_signal_that_the_script_uses_is_left_to_it() -> None:
    heard: list[int] = []
    former = signal.signal(SIGNAL, lambda number, _: heard.append(number))
    try:
        ready()
        os.kill(os.getpid(), SIGNAL)
        assert heard == [SIGNAL]
    finally:
        signal.signal(SIGNAL, former)

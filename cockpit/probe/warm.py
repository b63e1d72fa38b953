"""The process of a hot restart, before its turn: torch is imported here while the old one still trains. Then it waits.

Called by the injected sitecustomize, so that Python itself goes on with the script afterwards: ``__main__``, ``argv``,
``-m``, options, tracebacks and the exit status are its own, not an imitation. It must import torch and nothing else of
weight (no backward, no device), must not need the engine, and must never let the script begin without a ``go``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, Callable

from . import at_import, expendable, lives
from .begins_again import Script
from .guard import attempt
from .memory_left import fields

LOOK_S = 2.0
LEAVE_S, KILL_S = 30.0, 10.0
"""After the hand-off the old process has so long to end by itself; then it is told to, then ended."""
FAILED = 70


def wait(folder: str, waiter: Any) -> None:
    """Import torch, wait until it is this life's turn, and return; ends the process where that never comes.

    ``waiter`` is the finder that installs the probe: it must not see this import.
    """
    done = False
    try:
        plan = lives.read(folder, lives.PLAN)
        old = Other(int(plan["old"]["pid"]), plan["old"].get("started_ticks"))
        restore = expendable.offer()
        facts = _make_warm(waiter, plan)
        script = Script(folder, plan.get("script") or {})
        if _gives_up(folder, script):
            os._exit(0)
        lives.link(folder, lives.READY, facts)
        if not _is_our_turn(folder, old, script, float(plan.get("leave_s", LEAVE_S))):
            os._exit(0)
        _take_output(str(plan["output"]), os.path.join(folder, lives.LOG))
        _take_over(waiter)
        restore()
        done = True
    except BaseException:
        # whatever it is, Python would go on with the script: two trainings at once
        traceback.print_exc()
        raise
    finally:
        if not done:
            _flush()
            os._exit(FAILED)


class Other:
    """The process that trains until now, known for certain: by a handle, and by when it began."""

    def __init__(self, pid: int, started: int | None) -> None:
        self.pid, self._started = pid, started
        try:
            self._handle: int | None = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
        except (OSError, AttributeError):
            self._handle = None
        if not self._is_there() and self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, at the latest after ``seconds``."""
        if self._handle is None:
            until = time.monotonic() + seconds
            while self._is_there() and time.monotonic() < until:
                time.sleep(0.02)
            return not self._is_there()
        return bool(select.select([self._handle], [], [], seconds)[0])

    def send(self, number: int) -> None:
        """Signal it, and nobody after it."""
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)  # type: ignore[attr-defined,unused-ignore]
            elif self._is_there():
                os.kill(self.pid, number)

    def close(self) -> None:
        """Let go of the handle: the script begins with the three descriptors that it would have."""
        if self._handle is not None:
            os.close(self._handle)

    def _is_there(self) -> bool:
        try:
            with open("/proc/%d/stat" % self.pid) as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            return False
        return words[0] not in "ZX" and (self._started is None or int(words[19]) == self._started)


def _make_warm(waiter: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Import torch, unless it must be left to the script: ``plan`` says why, or what torch found in the process of
    before is not what it would find here. Where another program comes ``first``, nothing is imported."""
    began = time.perf_counter()
    why = [str(reason) for reason in plan.get("cold") or ()] or _why_cold(waiter, plan)
    if not why:
        with _as_the_script_finds_it(), _unseen(waiter):
            importlib.import_module("torch")
    if not plan.get("first"):
        importlib.import_module(__package__ + ".install")
    return {"pid": os.getpid(), "torch": not why, "why": why, "import_s": time.perf_counter() - began, **_memory()}


def _why_cold(waiter: Any, plan: Mapping[str, Any]) -> list[str]:
    told = plan.get("found")
    if not told or waiter not in sys.meta_path:
        return []
    with _as_the_script_finds_it(), _unseen(waiter):
        spec = importlib.util.find_spec("torch")
    waiter.note()
    mine = at_import.found(waiter.standing, spec.origin if spec is not None else None)
    return at_import.unlike(told, mine, plan.get("asked") or ())


@contextlib.contextmanager
def _unseen(waiter: Any) -> Any:
    if waiter not in sys.meta_path:  # another sitecustomize has imported torch: the probe is in already
        yield
        return
    sys.meta_path.remove(waiter)
    try:
        yield
    finally:
        sys.meta_path.insert(0, waiter)


@contextlib.contextmanager
def _as_the_script_finds_it() -> Any:
    """The script's folder stands first in ``sys.path``, as it will: a module of its own that hides another hides it."""
    first = None if getattr(sys.flags, "safe_path", False) else _script_folder(sys.argv[0])
    if first is not None:
        sys.path.insert(0, first)
    try:
        yield
    finally:
        if first is not None:
            sys.path.remove(first)
            sys.path_importer_cache.pop(first, None)


def _script_folder(word: str) -> str:
    if word in ("", "-c"):
        return ""
    if word == "-m":
        return os.getcwd()
    path = os.path.realpath(word)
    return path if os.path.isdir(path) else os.path.dirname(path)


def _memory() -> dict[str, Any]:
    """Kilobytes: resident, and of those what nobody else has (most of torch's libraries is shared)."""
    found, names = fields("/proc/self/smaps_rollup"), ("Rss", "Pss", "Private_Clean", "Private_Dirty")
    return {name.lower() + "_kb": found[name + ":"] for name in names if name + ":" in found}


def _gives_up(folder: str, script: Script) -> bool:
    """The script could not begin as it lies there now, so nobody is to hand over; who has just done so is followed."""
    why, _ = attempt(script.why_not)
    return why is not None and bool(attempt(lives.claim_go, folder, {"refused": why, lives.BY_SCRIPT: True})[0])


def _is_our_turn(folder: str, old: Other, script: Script, leave_s: float) -> bool:
    """Whether the old process has handed over and is gone. It is waited for by the kernel; a ``go`` is looked for now
    and then only so that one who cannot end after it is helped to."""
    steps: list[tuple[float, Callable[[], None]]] = [
        (leave_s, lambda: old.send(signal.SIGTERM)),
        (leave_s + KILL_S, lambda: old.send(signal.SIGKILL)),
    ]
    since = None
    while not old.wait(LOOK_S if since is None else 0.5):
        if since is None and lives.has(folder, lives.GO):
            since = time.monotonic()
            if lives.HANDOFF not in lives.read(folder, lives.GO):
                return False
        if since is None and _gives_up(folder, script):
            return False
        while since is not None and steps and time.monotonic() - since >= steps[0][0]:
            steps.pop(0)[1]()
    old.close()
    return lives.HANDOFF in lives.read(folder, lives.GO)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _take_output(path: str, log: str) -> None:
    """The run's output file again, and in it what the imports had to say."""
    _flush()
    output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    with open(log, "rb") as file:
        words = file.read()
    while words:
        words = words[os.write(2, words) :]


def _take_over(waiter: Any) -> None:
    importlib.invalidate_caches()  # the wait may have been long, and files have changed
    if "torch" in sys.modules:
        waiter._ready()


def first_step(folder: str, later: bool) -> None:
    """The mark of the first step that has ended: who trains. In a ``later`` life the keeper may go back to what was
    before until then. Not for the script's thread: the disk may be one that hangs."""
    if later:
        lives.mark(folder, lives.STEPPED)
    lives.note_training(folder)

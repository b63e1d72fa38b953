"""Why no probe has said hello: looks at the run's processes as ``/proc`` shows them, and at what the probe left behind.

Called by the engine now and then while it waits. ``reason_of`` is pure; a reason that may be wrong is only told once
torch has had time to be imported. It must never touch a process, and never claim what it has not seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cockpit.history.state import State
from cockpit.model.events import Event
from cockpit.model.missing import FAILED, ProbeMissed
from cockpit.model.names import ENV_RUN
from cockpit.sensors.members import Members
from cockpit.sensors.procfs import read_bytes, read_stat, read_text

from .launch import INJECT
from .processes import PROC, Pids, mark_of
from .rundir import RunDir

SURE_S = 3.0
"""A reason that we have seen is told after so long; a likely one after ``LIKELY_S``."""
LIKELY_S = 20.0
LOOK_S = 5.0
PROCESSES_MOST = 200
ERROR_LONGEST = 300
CONTAINERS = ("docker", "podman", "singularity", "apptainer", "enroot", "nerdctl", "bwrap", "chroot", "unshare")
ELSEWHERE = ("ssh", "srun", "kubectl", "mpirun", "mpiexec", "ray", "sudo", "su")
CLOSED = {"I": "-I (isolated)", "E": "-E (no environment)", "S": "-S (no site)"}
WITH_A_WORD = "cmQWX"
"""Options of Python after which the rest of the word, or the next word, is theirs."""


@dataclass(frozen=True)
class Seen:
    """One process of the run. ``env``: what it was started with; None where it is closed to us or was overwritten.

    ``python``: the program is an interpreter, as its file says. ``torch``: torch's library is loaded in it. ``apart``:
    what was seen to keep it from us.
    """

    pid: int
    name: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    python: str | None = None
    torch: bool = False
    apart: str | None = None


class Missing:
    """``argv`` is what was started. ``keeper`` is our own, and no process of the run's."""

    def __init__(self, run: RunDir, argv: Sequence[str], proc: Path = PROC) -> None:
        self._run = run
        self._argv = tuple(argv)
        self._proc = proc
        self._members: Members | None = None
        self._looked_s: float | None = None

    def look(self, now: float, pids: Pids, state: State, at_s: float) -> list[Event]:
        """What has become clear since the last look; nothing while a probe speaks, or has spoken."""
        if state.probe != "waiting" or state.phase != "running":
            return []
        if self._looked_s is not None and now - self._looked_s < LOOK_S:
            return []
        self._looked_s = now
        if self._members is None:
            mark = os.fsencode(mark_of(self._run))
            self._members = Members(self._proc, mark, {os.getpid(), pids.keeper}, rescan_s=0.0)
        ours = (self._run.sockets, self._run.data)
        seen = look(self._proc, {*self._members.find(now, pids.training), pids.training}, ours)
        waited_s = at_s - (state.started_s or at_s)
        return self._told(reason_of(seen, str(INJECT), self._left_behind(), waited_s), state, at_s)

    def last_look(self, state: State, at_s: float) -> list[Event]:
        """The training is over: what it left behind, else what its command alone tells."""
        if state.probe != "waiting":
            return []
        python = python_of(self._argv[0]) if self._argv else None
        seen = [Seen(0, "", self._argv, None, python)] if python and flags_of(self._argv) else []
        reason = reason_of(seen, str(INJECT), self._left_behind(), SURE_S)
        return self._told(reason or state.probe_reason, state, at_s)

    def _told(self, reason: str | None, state: State, at_s: float) -> list[Event]:
        return [] if reason == state.probe_reason else [ProbeMissed(at_s, reason)]

    def _left_behind(self) -> str | None:
        """The error with which the probe failed while it was loaded, if it did."""
        text = (read_text(self._run.probe_error) or "").strip()
        return text[:ERROR_LONGEST] or None


def look(proc: Path, pids: Iterable[int], ours: Sequence[Path] = ()) -> list[Seen]:
    """The processes as they are now; those that are gone meanwhile are left out. ``ours``: folders they must see."""
    found = (_look(proc, pid, ours) for pid in sorted(pids)[:PROCESSES_MOST])
    return [seen for seen in found if seen is not None]


def _look(proc: Path, pid: int, ours: Sequence[Path]) -> Seen | None:
    stat = read_stat(proc, pid)
    words = (read_text(f"{proc}/{pid}/cmdline") or "").split("\0")[:-1]
    if stat is None or not words:
        return None
    try:
        program = os.readlink(f"{proc}/{pid}/exe")
    except OSError:
        program = words[0]
    python = python_of(program)
    torch = python is not None and b"libtorch" in (read_bytes(f"{proc}/{pid}/maps") or b"")
    return Seen(
        pid,
        stat.name,
        tuple(words),
        _env_of(read_text(f"{proc}/{pid}/environ")),
        python,
        torch,
        _apart(proc, pid, ours),
    )


def _apart(proc: Path, pid: int, ours: Sequence[Path]) -> str | None:
    """What keeps a process from us, where that can be seen."""
    user = re.search(r"^Uid:\s+\d+\s+(\d+)", read_text(f"{proc}/{pid}/status") or "", re.MULTILINE)
    if user and int(user[1]) != os.geteuid():
        return f"it runs as another user ({user[1]})"
    root = Path(f"{proc}/{pid}/root")
    hidden = next(
        (path for path in ours if _is_there(root) and not _is_there(root / path.absolute().relative_to("/"))), None
    )
    return None if hidden is None else f"{hidden} is hidden from it"


def _is_there(path: Path) -> bool:
    """Whether it exists, or may: not everything can be looked into."""
    try:
        os.stat(path)
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, NotADirectoryError))
    return True


def _env_of(text: str | None) -> dict[str, str] | None:
    """A process may be started with no variables at all; one that sets its own title overwrites them."""
    if text is None or (text and "=" not in text):
        return None
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)


def python_of(program: str) -> str | None:
    """The name of an interpreter, None where the program is none."""
    name = os.path.basename(program)
    return name if re.fullmatch(r"(python|pypy)[\d.]*[td]?", name) else None


def reason_of(seen: Sequence[Seen], inject: str, error: str | None, waited_s: float) -> str | None:
    """The likeliest reason after ``waited_s`` seconds; None while there is none to tell."""
    if error is not None:
        return f"{FAILED}: {error}"
    pythons = [each for each in seen if each.python]
    shut = [(each, why) for each in pythons if (why := _why_shut(each, inject))]
    # where one interpreter is open to us it may be the training, and only be slow with its imports
    sure = next((why for each, why in reversed(shut) if each.torch or len(shut) == len(pythons)), None)
    if sure is not None:
        return sure if waited_s >= SURE_S else None
    if waited_s < LIKELY_S:
        return None
    if shut:
        return shut[-1][1]
    return _likely(seen, pythons)


def _likely(seen: Sequence[Seen], pythons: Sequence[Seen]) -> str:
    programs = [(os.path.basename(word), each) for each in seen for word in each.argv[:1]]
    inside = next((name for name, _ in programs if name in CONTAINERS), None)
    if inside is not None:
        return f"the training runs in a container or sandbox ({inside}), which the probe cannot enter"
    elsewhere = next((name for name, _ in programs if name in ELSEWHERE), None)
    if elsewhere is not None:
        return f"the training was started by {elsewhere}, with another environment or on another machine"
    loaded = next((each for each in pythons if each.torch), None)
    if loaded is not None:
        if loaded.apart is not None:
            return f"torch is loaded in process {loaded.pid} and no probe answers: {loaded.apart}"
        return f"torch is being imported in process {loaded.pid}: from a slow disk that can take minutes"
    if pythons:
        return "torch has not been imported yet"
    names = ", ".join(dict.fromkeys(each.name for each in seen))
    return f"no Python runs in it yet, only {names}" if names else "no process of the run was found"


def _why_shut(each: Seen, inject: str) -> str | None:
    """Why the probe cannot get into this interpreter."""
    version = re.match(r"python(\d)\.(\d+)", each.python or "")
    if (each.python or "").startswith("pypy") or (version and (int(version[1]), int(version[2])) < (3, 9)):
        return f"{each.python} is no interpreter for the probe: it needs CPython 3.9 or newer"
    flags = flags_of(each.argv)
    closed = next((CLOSED[flag] for flag in flags if flag in CLOSED), None)
    if closed is not None:
        return f"python runs with {closed}, so the probe cannot get in"
    if each.env is None:
        return None
    if ENV_RUN not in each.env:
        return f"process {each.pid} ({each.name}) was started with an environment of its own, without the probe"
    if inject not in each.env.get("PYTHONPATH", "").split(os.pathsep):
        return "the command replaced PYTHONPATH (write PYTHONPATH=.:$PYTHONPATH)"
    return None


def flags_of(argv: Sequence[str]) -> str:
    """The one-letter options that Python itself was given: ``python -uI -m x`` has ``uI``."""
    flags, words = "", iter(argv[1:])
    for word in words:
        if word.startswith("--"):
            continue
        if not word.startswith("-") or word == "-":
            break
        for at, letter in enumerate(word[1:], 1):
            if letter in WITH_A_WORD:
                if letter in "cm":
                    return flags
                if at == len(word) - 1:
                    next(words, None)
                break
            flags += letter
    return flags

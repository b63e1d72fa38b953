"""Starts a run, or an engine for a run that has lost its own. Called by the command line.

Must feel instant and must leave nothing of this process behind: the engine is a process of its own, in its own
session, with its own files. Whatever goes wrong comes back as one sentence.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cockpit.model.errors import StartError
from cockpit.model.knobs import Value

from . import launch
from .checkpoints import check_resume
from .crash_plan import RESTART, WAITS_S
from .processes import boot_id, other_host
from .rundir import RunDir, new_rundir, runs_folder, safe_sockets, write_json
from .runs import is_over

ENGINE = launch.PACKAGE / "engine" / "__main__.py"
START_S_AT_MOST = 20.0
GRACE_S = 30.0


@dataclass(frozen=True)
class Scheduled:
    """A change that waits for its moment: ``when`` is ``epoch``, ``step`` or ``time`` (seconds), from ``n`` on."""

    when: str
    n: float
    knobs: Mapping[str, Value]
    loader: str | None = None


@dataclass(frozen=True)
class Spec:
    """What to run. ``words`` is ``SCRIPT args…`` where ``is_script``, else a whole command.

    ``setup`` applies to every training loader from the start, ``loaders`` to named ones (``train.py:41``).
    ``variables``: what the training finds in its environment, other than the caller's (None: taken away).
    ``grace_s``: how long a soft stop waits. ``window``: rows and columns of the terminal that would be the training's
    input, if it were started without us; None where that would be none. ``on_crash``: it is tried again by itself,
    after ``crash_waits_s``. ``handoff_every``: a hand-off at the end of every so many epochs, where the script calls
    ``cockpit.session``; None: as ``on_crash`` needs it, and for no more than a small share of the time.
    ``resume_with``: words by which the script itself resumes, from the newest of ``checkpoints`` (a pattern).
    """

    words: Sequence[str]
    is_script: bool = True
    name: str | None = None
    setup: Mapping[str, Value] = field(default_factory=dict)
    loaders: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    variables: Mapping[str, str | None] = field(default_factory=dict)
    at: Sequence[Scheduled] = ()
    grace_s: float = GRACE_S
    on_crash: bool = False
    crash_waits_s: Sequence[float] = WAITS_S
    handoff_every: int | None = None
    resume_with: str | None = None
    checkpoints: str | None = None
    state_dir: Path | None = None
    cwd: Path | None = None
    environ: Mapping[str, str] | None = None
    window: tuple[int, int] | None = None


def start_run(spec: Spec) -> RunDir:
    """Start the training and its engine; returns once it runs. Raises StartError (125, 126, 127) with a sentence."""
    environ = dict(os.environ) if spec.environ is None else spec.environ
    cwd = _here() if spec.cwd is None else spec.cwd
    argv, script = launch.command_for(spec.words, spec.is_script, environ, cwd)
    if spec.resume_with is not None:
        check_resume(spec.resume_with, argv)
    run = new_rundir(script, spec.name, runs_folder(spec.state_dir, environ), safe_sockets())
    _write_facts(run, spec, argv, script, cwd)
    env = launch.environment(
        launch.with_variables(launch.for_a_first_life(environ), spec.variables), run.data, run.socket
    )
    plan = json.dumps({"argv": argv, "env": env, "cwd": str(cwd), "window": spec.window}).encode()
    _spawn_engine(run, plan, environ)
    return run


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise StartError("the present folder does not exist any more: change to another one") from error


def ensure_engine(run: RunDir, to_show: bool = False) -> bool:
    """Whether an engine answers now for ``run``; starts one where the old one is gone and the run has not ended.

    False: the run is over and its journal says all there is. ``to_show`` starts one even then: it serves what the
    journal tells as long as somebody looks. Raises StartError where none can be started.
    """
    if answers(run):
        return True
    if is_over(run) and not to_show:
        return False
    host = other_host(run.facts())
    if host is not None:
        raise StartError(f"{run.name} was started on {host}: ask for it there", 1)
    safe_sockets(run.sockets)
    _spawn_engine(run, b"", os.environ)
    until = time.monotonic() + START_S_AT_MOST
    while time.monotonic() < until:
        if answers(run):
            return True
        if is_over(run) and not to_show:
            return False
        time.sleep(0.02)
    raise StartError(f"the engine of {run.name} does not answer: see {run.engine_log}", 1)


def answers(run: RunDir) -> bool:
    """Whether something listens on the run's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(run.socket))
        except OSError:
            return False
    return True


def _write_facts(run: RunDir, spec: Spec, argv: Sequence[str], script: str, cwd: Path) -> None:
    at = [
        {
            "id": f"at{number}",
            "when": item.when,
            "n": item.n,
            "knobs": dict(item.knobs),
            "loader": item.loader,
        }
        for number, item in enumerate(spec.at)
    ]
    loaders = {name: dict(knobs) for name, knobs in spec.loaders.items()}
    try:
        every = spec.handoff_every if spec.handoff_every is not None else int(spec.on_crash)
        pace = {"handoff_every": every, "handoff_sparing": spec.handoff_every is None}
        start = {"run": run.name, "set": dict(spec.setup), "loaders": loaders, "at": at, **pace}
        write_json(run.start_file, start)
        facts = {
            "run": run.name,
            "argv": list(argv),
            "cwd": str(cwd),
            "window": spec.window,
            "script": script,
            "setup": dict(spec.setup),
            "loaders": loaders,
            "environment": dict(spec.variables),
            "grace_s": spec.grace_s,
            "on_crash": RESTART if spec.on_crash else None,
            "crash_waits_s": list(spec.crash_waits_s),
            "resume_with": spec.resume_with,
            "checkpoints": spec.checkpoints,
            "started_s": round(time.time(), 3),
            "host": socket.gethostname(),
            "boot": boot_id(),
        }
        write_json(run.facts_file, facts)
        run.point()
    except OSError as error:
        raise StartError(f"cannot write into {run.data}: {error.strerror}") from error


def _spawn_engine(run: RunDir, plan: bytes, environ: Mapping[str, str]) -> None:
    """Start an engine process and wait for its first word: fine, or why not."""
    command = [sys.executable, "-I", str(ENGINE), str(run.data), str(run.sockets)]
    try:
        with open(run.engine_log, "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=launch.bare_environment(environ),
                start_new_session=True,
            )
    except OSError as error:
        raise StartError(f"cannot start the engine: {error.strerror}") from error
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        try:
            process.stdin.write(plan)
            process.stdin.close()
            word = _first_word(process.stdout.fileno(), run, is_start=bool(plan))
        except BrokenPipeError:
            word = {}
    process.wait()
    if not word.get("ok"):
        sentence = word.get("error") or f"the engine of {run.name} died at its start: see {run.engine_log}"
        raise StartError(str(sentence), int(word.get("code", StartError.code)))


def _first_word(pipe: int, run: RunDir, is_start: bool) -> dict[str, Any]:
    """What the engine says first. Raises StartError where it says nothing in time: the start is off then."""
    if (word := _first_line(pipe)) is not None:
        return word
    if not is_start:
        raise StartError(f"the engine of {run.name} did not answer within {START_S_AT_MOST:g} s: try again", 1)
    if run.claim_start():
        raise StartError(f"nothing was started: the engine was not ready within {START_S_AT_MOST:g} s")
    if (word := _first_line(pipe)) is not None:  # it is being started this very moment
        return word
    raise StartError(f"not known yet whether {run.name} runs: cockpit ls tells, cockpit stop {run.name} ends it")


def _first_line(pipe: int) -> dict[str, Any] | None:
    """None: nothing within a time that is long."""
    got = b""
    until = time.monotonic() + START_S_AT_MOST
    while not got.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return None
        piece = os.read(pipe, 65536)
        if not piece:
            return {}
        got += piece
    found = json.loads(got)
    return found if isinstance(found, dict) else {}

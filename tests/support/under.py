"""Run a training under the cockpit through the real command line, as a person would. Called by end-to-end tests.

Cleans up by a mark that only our own processes carry (the folder of this run), never by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cockpit.cli.runs import state_of
from cockpit.engine.runs import resolve
from cockpit.history.status import status_of as told_of

from .bare import clean_env, status_of
from .outcome import REPO, Outcome
from .waiting import wait_for

COCKPIT = (sys.executable, "-m", "cockpit.cli.main")


def run_under(
    command: Sequence[str],
    scratch: Path,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = 180,
) -> Outcome:
    """``cockpit run --headless --json [options] -- command`` to its end, with its report and the training's output."""
    try:
        done = subprocess.run(
            [*COCKPIT, "run", "--headless", "--json", *_named(scratch), *options, "--", *command],
            cwd=REPO,
            env=clean_env(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as late:
        sweep(scratch)
        raise AssertionError(f"{command} did not end: {late.stderr!r}; log {_log(scratch)[-2000:]!r}") from late
    data_dir = scratch / "runs" / "it"
    talk = done.stderr.decode(errors="replace")
    return Outcome(status_of(done.returncode), _log(scratch), _report(done.stdout), talk, data_dir)


def ask(scratch: Path, verb: str, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """One verb of the command line on the runs kept in ``scratch``; never raises for its exit status."""
    return subprocess.run(
        [*COCKPIT, verb, "--state-dir", str(scratch), *words],
        cwd=REPO,
        env=clean_env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=timeout_s,
    )


def logs(scratch: Path) -> bytes:
    """What ``cockpit logs`` writes to stdout, to the byte."""
    words = [*COCKPIT, "logs", "--state-dir", str(scratch), "it"]
    return subprocess.run(words, cwd=REPO, env=clean_env(), capture_output=True, timeout=60, check=True).stdout


@contextlib.contextmanager
def detached(
    command: Sequence[str], scratch: Path, options: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """A run that goes on in the background while the test talks to it; whatever is left is killed at the end."""
    started = subprocess.run(
        [*COCKPIT, "run", "--detach", *_named(scratch), *options, "--", *command],
        cwd=REPO,
        env=clean_env(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    try:
        assert started.returncode == 0, started.stderr
        yield scratch / "runs" / "it"
    finally:
        sweep(scratch)


def status(scratch: Path) -> dict[str, Any]:
    """``cockpit status --json`` of the run in ``scratch``."""
    answer = ask(scratch, "status", "it", "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def peek(scratch: Path) -> dict[str, Any]:
    """What ``status`` tells, asked from this process: to be asked again and again, where a Python each time would take
    half a core from the training that is waited for."""
    told: dict[str, Any] = json.loads(json.dumps(told_of(state_of(resolve("it", scratch)), time.time())))
    return told


def wait_until(check: Any, what: str, timeout_s: float = 60, every_s: float = 0.2) -> Any:
    """The first true value of ``check()``, which may run a command: asked less often."""
    return wait_for(check, what, timeout_s, every_s)


def processes_of(scratch: Path) -> list[int]:
    """Every process whose command line or environment names ``scratch``: keeper, engine, training, workers."""
    mark = os.fsencode(str(scratch))
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (folder / "cmdline").read_bytes() or mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def sweep(scratch: Path) -> None:
    """Kill what a test has left running; only processes that name its own scratch folder are touched."""
    for pid in processes_of(scratch):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _named(scratch: Path) -> tuple[str, ...]:
    return "--state-dir", str(scratch), "--name", "it"


def _log(scratch: Path) -> bytes:
    log = scratch / "runs" / "it" / "output.log"
    return log.read_bytes() if log.exists() else b""


def _report(stdout: bytes) -> dict[str, Any] | None:
    """The one object on stdout; anything beside it is a broken promise, so json's own error may come out."""
    return json.loads(stdout) if stdout.strip() else None

"""Run a training bare, just as a person would without cockpit. Called by the end-to-end tests; never starts cockpit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .outcome import REPO, Outcome

FOREIGN = ("COCKPIT", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONWARNINGS")


def clean_env(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment both kinds of run begin with: nothing of ours, one model thread, output unbuffered."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**env, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **(more or {})}


def command_of(script: Path, args: Sequence[str] = ()) -> list[str]:
    """What a person types to run this file."""
    return [{".py": sys.executable, ".sh": "sh"}[script.suffix], str(script), *args]


def status_of(returncode: int) -> int:
    """The shell's number for it: 128 + n for signal n."""
    return 128 - returncode if returncode < 0 else returncode


def run_bare(
    command: Sequence[str], scratch: Path, env: Mapping[str, str] | None = None, timeout_s: float = 120
) -> Outcome:
    """Run ``command`` to its end, both streams into one file and without a terminal, as under the cockpit."""
    log = scratch / "bare.log"
    with log.open("ab") as output:
        done = subprocess.run(
            command,
            cwd=REPO,
            env=clean_env(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=timeout_s,
        )
    return Outcome(status_of(done.returncode), log.read_bytes())

"""Which commands of a run may be started at once by a restart, and which would do something before their turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.engine.next_argv import WAITS_FIRST, program_before, waiting_first


@pytest.mark.parametrize(
    ("argv", "words", "first"),
    [
        ("/v/python train.py a", "/v/python train.py a", None),
        ("/v/python -u -m pack", "/v/python -u -m pack", None),
        ("/shims/python3 train.py", "/real/python3.11 train.py", None),  # a shim looks the version up
        ("/v/bin/tool launch x", "/v/python -E /v/bin/tool launch x", None),  # names its interpreter
        ("/usr/bin/taskset -c 0 python -u train.py", "python -u train.py", None),
        ("/usr/bin/env A=1 python train.py", "python train.py", None),
        ("/bin/bash launch.sh", "/v/python train.py", "bash"),
        ("/bin/sh -c exec python train.py", "python train.py", "sh"),
        ("/usr/bin/poetry run python train.py", "/p/python train.py", "poetry"),
        ("/usr/bin/python3 launcher.py", "/v/python train.py", "python3"),
        ("/usr/bin/python3 -m poetry run python train.py", "python train.py", "python3"),
        ("/usr/bin/nice python train.py", "python other.py", "nice"),
        ("/old/python3.9 -u train.py a", "train.py a", None),  # knows the script's words only
        ("/old/python3.9 train.py a", "", "python3.9"),
    ],
)
def test_what_runs_before_the_training(argv: str, words: str, first: str | None) -> None:
    assert program_before(argv.split(), words.split()) == first


def test_what_waits_leaves_nothing_of_itself_to_the_command(tmp_path: Path) -> None:
    """Environment, words, signals and folder are those of a command that is started as it is."""
    shell = "tr '\\0' '\\n' </proc/$$/environ | sort; grep Sig[IB] /proc/self/status; pwd; echo \"$0 $1\""
    argv = ["/bin/sh", "-c", shell, "zero", "a b"]
    env = {"MINE": "1", "COCKPIT_LIFE": "x", "BYTES": os.fsdecode(b"\xff")}
    told = [
        subprocess.run(words, env=more, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
        for words, more in ((argv, env), (waiting_first(argv), env | {"COCKPIT_WARM": "y"}))
    ]
    assert told[0] == told[1] and b"MINE=1" in told[0] and b"a b" in told[0]


def test_a_command_that_is_gone_says_so_with_a_shells_status() -> None:
    done = subprocess.run([sys.executable, str(WAITS_FIRST), "/no/such"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "/no/such: No such file or directory\n")

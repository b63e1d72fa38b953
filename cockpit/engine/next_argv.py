"""What a hot restart starts: the run's own command, or before it a process that waits where the command does more.

A Python waits by itself, before the first line of its script. A shell or another launcher would begin at once with
what it does before it becomes that Python, beside a training that goes on. Pure; called by ``restarts``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

WAITS_FIRST = Path(__file__).with_name("then_run.py")
HAND_ON = ("chrt", "env", "ionice", "nice", "nohup", "numactl", "prlimit", "setarch", "setsid", "stdbuf", "taskset")
"""Programs that only set something for the one that they become."""
PYTHONS = ("python", "pypy")


def program_before(argv: Sequence[str], words: Sequence[str]) -> str | None:
    """The program that runs before the Python with these ``words`` and may do anything; None where there is none.

    A script that names its interpreter has it, and an option, in front of its own words. A Python below 3.10 does not
    know those words: they are the script's and what follows it.
    """
    program, own, asked = os.path.basename(argv[0]), list(words), list(argv)
    is_python = program.startswith(PYTHONS)
    if own[-len(asked) :] == asked or (is_python and own[1:] == asked[1:]):
        return None
    knows_its_words = bool(own) and os.path.basename(own[0]).startswith(PYTHONS)
    may_follow = program in HAND_ON or (is_python and not knows_its_words)
    return None if may_follow and own and asked[-len(own) :] == own else program


def waiting_first(argv: Sequence[str]) -> list[str]:
    """The command behind a Python of ours that waits for its turn, as every Python of a next life does."""
    return [sys.executable, str(WAITS_FIRST), *argv]

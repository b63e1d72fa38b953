"""What the files of a life tell while it is prepared and handed over to. Called by ``restarts`` and
``next_life``.

Of what cannot be read or written nothing is made: a full disk is no reason to fail here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from cockpit.probe import lives
from cockpit.probe.leaving import LEFT

WORDS_LONGEST = 300


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[Path]:
    """Where a life is written; it gets its name when all of it is there, so that whoever finds it finds it whole.
    Where that fails nothing of it stays: it would be in the way of every later try of this engine."""
    unnamed = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(unnamed, ignore_errors=True)  # of an engine that was killed, and had this number, too
    try:
        unnamed.mkdir(mode=0o700)
        yield unnamed
        os.rename(unnamed, folder)
    finally:
        shutil.rmtree(unnamed, ignore_errors=True)


def is_handed_over(folder: str | None, reason: str) -> bool:
    """Give the life in ``folder`` up, unless the training was first: then it goes on there."""
    if folder is None:
        return False
    # no room for it: whoever would hand over has none either
    with contextlib.suppress(OSError):
        if lives.give_up(folder, reason):
            return False
    return lives.HANDOFF in lives.read(folder, lives.GO)


def changed_s(path: str) -> float | None:
    """When the file was last written; None where there is none."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def error_of(life: str) -> str:
    """What nobody caught in it; empty where it left no word."""
    return str(lives.read(life, LEFT).get("error") or "")


def last_line(path: str) -> str:
    """The last that names an error, else the last."""
    try:
        with open(path, errors="replace") as file:
            lines = [line.strip() for line in file.read()[-10_000:].splitlines() if line.strip()]
    except OSError:
        return ""
    telling = [line for line in lines if "rror" in line] or lines
    return telling[-1][:WORDS_LONGEST] if telling else ""

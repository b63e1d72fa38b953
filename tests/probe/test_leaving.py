"""How a process says by what it ends: the exception that nobody caught; nothing of the script's is replaced."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cockpit

BEGIN = """
import atexit, sys
from cockpit.probe.leaving import leave_word
atexit.register(leave_word, {folder!r}, {trains})
class Odd(Exception):
    def __str__(self): raise ValueError("no words")
class Late(SystemExit): pass
"""


def ended(folder: Path, source: str, trains: bool = True) -> tuple[int, dict[str, Any] | None]:
    text = BEGIN.format(folder=str(folder), trains=trains) + source
    where = Path(cockpit.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", text], cwd=where, capture_output=True, timeout=60)
    path = folder / "left.json"
    return done.returncode, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize(
    ("source", "status", "error"),
    [
        ("raise RuntimeError('first line\\nsecond')", 1, "RuntimeError: first line"),
        ("raise MemoryError", 1, "MemoryError"),
        ("raise Odd", 1, "Odd"),
        ("sys.exit(3)", 3, None),
        ("raise Late(4)", 4, None),
        ("pass", 0, None),
        ("raise KeyboardInterrupt", -signal.SIGINT, None),
        ("sys.excepthook = lambda *_: None\nraise RuntimeError('quiet')", 1, "RuntimeError: quiet"),
    ],
)
def test_what_nobody_caught(tmp_path: Path, source: str, status: int, error: str | None) -> None:
    returned, left = ended(tmp_path, source)
    assert returned == status and left is not None and left["error"] == error


def test_who_is_killed_leaves_no_word(tmp_path: Path) -> None:
    assert ended(tmp_path, "import os; os.kill(os.getpid(), 9)") == (-9, None)
    assert ended(tmp_path / "gone", "raise RuntimeError") == (1, None)


def test_the_first_of_several_that_fail_together(tmp_path: Path) -> None:
    word = {"pid": 1, "trains": True, "error": "RuntimeError: the reason", "at_s": time.time() + 60.0}
    (tmp_path / "left.json").write_text(json.dumps(word))
    _, left = ended(tmp_path, "raise RuntimeError('connection closed by peer')")
    assert left == word, "it ended beside this one, which failed with it"
    _, left = ended(tmp_path, "pass")
    assert left is not None and left["error"] is None
    (tmp_path / "left.json").write_text(json.dumps({**word, "at_s": time.time() - 60.0}))
    _, left = ended(tmp_path, "raise RuntimeError('another run of the script')")
    assert left is not None and left["error"] == "RuntimeError: another run of the script"


def test_the_word_of_who_trained_counts_before_its_launchers(tmp_path: Path) -> None:
    ended(tmp_path, "raise RuntimeError('the reason')")
    _, left = ended(tmp_path, "raise OSError('my child failed')", trains=False)
    assert left is not None and left["error"] == "RuntimeError: the reason"
    _, left = ended(tmp_path, "pass")
    assert left is not None and left["error"] is None

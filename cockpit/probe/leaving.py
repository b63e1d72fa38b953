"""How this process ends, left in a file for the engine: by an exception that nobody caught, or by itself.

Called by the probe at exit, beside the script's thread. Python has printed the traceback by then and remembers what it
was; nothing is put in the place of ``sys.excepthook``, which is the script's. Who is killed leaves no word, and that
tells it, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..model.names import ENV_LIFE, ENV_RUN
from . import lives
from .guard import attempt

LEFT = "left.json"
LEAVE_S = 1.0
"""The disk may be one that does not answer: so long the word is waited for, and then the process ends without it."""
WORDS_LONGEST = 160
BEGAN_S = time.time()
"""Whatever ended later ended beside this process, and not before it."""


def place_of(environ: Mapping[str, str]) -> str | None:
    """The folder of this process's life; None outside a run."""
    return environ.get(ENV_LIFE) or environ.get(ENV_RUN)


def leave_word(folder: str | None, trains: bool) -> None:
    """The word of who trained counts before its launcher's, and the first rank's before that of others: those only fail
    with it."""
    if folder is None:
        return
    before, error = lives.read(folder, LEFT), error_words()
    if before.get("error") and before.get("trains"):
        beside = isinstance(before.get("at_s"), float) and before["at_s"] >= BEGAN_S
        if not trains or (error is not None and beside):
            return
    with contextlib.suppress(OSError):  # a folder that is gone or full: nothing is known then
        lives.put(folder, LEFT, {"pid": os.getpid(), "trains": trains, "error": error, "at_s": time.time()})


def error_words() -> str | None:
    """What nobody caught, in one line; None where nothing was thrown, or by whoever wanted it to end."""
    error: Any = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return None
    text, _ = attempt(str, error)  # it is the script's own, and may fail
    lines = str(text or "").strip().splitlines()
    words = "%s: %s" % (type(error).__name__, lines[0]) if lines else type(error).__name__
    return words[:WORDS_LONGEST]

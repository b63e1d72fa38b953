"""Which process of a run the hand-offs are of: the first that calls ``cockpit.session`` in each of the run's lives.

A shell loop over seeds, or a launcher, may start several; what one has written must not be restored into another.
"""

from __future__ import annotations

import contextlib
import os
import sys

from .. import lives
from .folder import made

CLOSED = "closed"
"""Among the hand-offs: why no process may begin from them after a crash. It might be another training."""
TAKEN = "another process of this run has called cockpit.session(…) before: hand-offs are of that one"
AGAIN = "cockpit.session(…) was called again after its loop had ended: only the first training can go on"
OTHERS = {
    TAKEN: "several processes of this run have called cockpit.session(…), and a new one may be any of them",
    AGAIN: "the training that they are of has ended, and another one has begun after it",
}
THROUGH = "the process that they are of has come to its end"


def close(folder: str, why: str) -> None:
    """Say so; what was said first stands."""
    with contextlib.suppress(OSError), open(os.path.join(folder, CLOSED), "x", encoding="utf-8") as file:
        file.write(why)


def closed(folder: str) -> str | None:
    """Why nobody may; None where whoever comes goes on with the one training that there was."""
    try:
        with open(os.path.join(folder, CLOSED), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "whose they are cannot be read"


def claim(folder: str, life: str) -> str | None:
    """Why this process cannot be the one, or None."""
    path = os.path.join(folder, "%s.pid" % life)
    try:
        made(folder)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, b"%d\n" % os.getpid())
        finally:
            os.close(handle)
    except FileExistsError:
        if _holder(path) != os.getpid():
            return TAKEN
    except OSError:
        pass  # a full disk must not keep anybody from going on; what cannot be written says so when it is due
    return None


def only_prepares() -> bool:
    """Whether multiprocessing is just getting this process ready, spawned or a server of forks: it runs the top of the
    script once more to find what it is to call there. That opens no training, be it a loader's worker or anybody."""
    process = sys.modules.get("multiprocessing.process")  # imported for such a one, and dear for any other
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))


def _holder(path: str) -> int | None:
    try:
        with open(path, encoding="utf-8") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def goes_on_without_us(life: str) -> bool:
    """Whether this very process is to go on from a hand-off: asked where no probe is in it that could restore one."""
    mine = any(
        lives.read(folder, lives.PIDS).get("training") == os.getpid() for folder in (life, os.path.dirname(life))
    )
    return mine and was_handed_over(life)


def was_handed_over(life: str) -> bool:
    """Whether the process before has written a hand-off for this life, or for the one whose place it takes."""
    return any(lives.read(folder, lives.GO).get(lives.HANDOFF) for folder in (life, os.path.dirname(life)))

"""Ends what a process has left behind that failed before its first step: the training of a shell that was killed, say.

Run by the keeper through its path, right before the process of before runs again: two must never train at once, and a
board or an uploader of the failed one would be in the way of the same one's. It knows nothing but pids and signals.
"""

from __future__ import annotations

import os
import signal
import time

LOOK_S = 0.1
KILL_AFTER_S, GIVEN_UP_S = 5.0, 20.0
"""Told to end at once, ended after so long; who sleeps in the kernel longer than that cannot be helped."""


def end_children() -> None:
    """All that hang on this process, which takes in every orphan below it. Returns once none is left."""
    turns = int(GIVEN_UP_S / LOOK_S)
    for turn in range(turns):
        if not any_left():
            return
        late = turn * LOOK_S >= KILL_AFTER_S
        for pid in below(os.getpid()) if turn == 0 or late else ():
            tell(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(LOOK_S)


def any_left() -> bool:
    """Whether a child lives; those that have ended are waited for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def tell(pid: int, number: int) -> None:
    """Who is gone in that very moment needs no signal, and whoever is not ours to tell gets none."""
    try:
        os.kill(pid, number)
    except OSError:
        return


def below(pid: int) -> list[int]:
    """Children, and theirs, as the kernel lists them; what hangs on other threads comes to us as its parent ends."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            found = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return found + [deeper for child in found for deeper in below(child)]

"""Signals that reach the one process that is meant, and no later one that has got its number.

Called by the probe for what workers leave behind, and by the engine. Without handles (an old kernel, no Linux) it is as
sure as a look just before can make it.
"""

from __future__ import annotations

import os
import signal
from typing import Callable


def open_handle(pid: int) -> int | None:
    """A descriptor that means this process and no later one, readable once it has ended; None where there is none."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def send(pid: int, number: signal.Signals, is_it: Callable[[], bool]) -> bool:
    """Whether it was told: ``is_it`` says, once its handle is held, whether the process is the one that is meant."""
    handle = open_handle(pid)
    try:
        if not is_it():
            return False
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True

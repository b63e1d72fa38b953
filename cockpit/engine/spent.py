"""Removes the hand-offs of a training that is through: nothing can go on from them, and they may be large.

Called by ``following`` at the end of a run. Whatever could still go on keeps its own: a crash, a kill, a stop before
the last epoch, a loop that was left early; whatever the status was, which may be a shell's. It touches nothing but what
bears a hand-off's name in the run's own folder, and never while a process of the run may still write there.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from cockpit.model.names import HANDOFF_FOLDER
from cockpit.probe.handoff.claim import AGAIN, OTHERS, THROUGH, closed
from cockpit.probe.handoff.folder import GONE, is_left_over

from .crash_plan import Base, Left
from .rundir import RunDir


def are_spent(run: RunDir, newest: Base | None, left: Left | None) -> bool:
    """Whether what has ended with status 0 has come to its end. ``newest``: the hand-off that could be gone on from;
    ``left``: the word of who trained.

    The training says so itself where it was through; else its word must be good, and nothing be left of its epochs.
    Where nobody knows, they stay: that costs room, and nothing else.
    """
    why = closed(str(run.data / HANDOFF_FOLDER))
    if why == THROUGH:
        return True
    if left is None or not left.trains or left.error is not None:
        return False
    return why == OTHERS[AGAIN] or (newest is not None and newest.epochs_left == 0)


def remove_handoffs(run: RunDir) -> threading.Thread | None:
    """Each is renamed at once, so that nothing half gone looks like a damaged one; what takes its time on a slow disk
    goes on beside the engine, which ends after it. None where there is nothing to remove."""
    folder = run.data / HANDOFF_FOLDER
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        for entry in entries:
            if entry.name.isdigit():
                os.rename(entry.path, entry.path + GONE)
        gone = [folder / name for name in os.listdir(folder) if is_left_over(name)]
    except OSError:
        return None  # no folder, or none that we may write into: prune finds them later
    if not gone:
        return None
    thread = threading.Thread(target=_remove, args=(gone,), name="hand-offs")
    thread.start()
    return thread


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)

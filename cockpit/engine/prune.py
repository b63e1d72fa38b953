"""Forgets runs that ended long ago, so that nobody's home fills up. Called by the engine of a new run, once.

Only what is older than a month and not among the newest fifty; only folders that hold nothing but files of ours; never
a run whose end is not written down, and never one that an engine holds. Its later processes and its hand-offs go first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from pathlib import Path

from cockpit.model.names import HANDOFF_FOLDER
from cockpit.probe.handoff.beginning import BEGAN
from cockpit.probe.handoff.claim import CLOSED
from cockpit.probe.handoff.folder import is_left_over

from .rundir import RunDir, rundir_at
from .runs import is_over

KEPT = 50
KEPT_S = 30 * 86400.0
AT_ONCE = 20
OURS = re.compile(
    r"\.?(journal-\d{6,}[-a-z]*\.jsonl(\.gz)?|run\.json|start\.json|pids\.json|exit_status|output\.log"
    r"|engine\.(log|lock|json)|probe_error|left\.json|trained)(\.\w+)?"
)
LIVES, CLAIMS = re.compile(r"\.?life-\d+(\.\d+)?"), re.compile(rf"life-[-\w]+\.pid|{CLOSED}|\.?{BEGAN}(\.\d+)?")


def old_runs(run: RunDir, now_s: float) -> list[str]:
    """The names of the runs beside ``run`` that were forgotten."""
    ended: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(run.data.parent):
            if entry.is_dir(follow_symlinks=False) and Path(entry.path) != run.data:
                with contextlib.suppress(OSError):
                    ended.append((os.stat(os.path.join(entry.path, "exit_status")).st_mtime, Path(entry.path)))
    old = [folder for ended_s, folder in sorted(ended, reverse=True)[KEPT:] if now_s - ended_s > KEPT_S]
    return [folder.name for folder in old[-AT_ONCE:] if _forget(rundir_at(folder))]


def _is_ours(run: RunDir, name: str) -> bool:
    """Later processes of the run and its hand-offs, which may be large."""
    if name != HANDOFF_FOLDER:
        return LIVES.fullmatch(name) is not None
    names = os.listdir(run.data / name)
    return all(each.isdigit() or is_left_over(each) or CLAIMS.fullmatch(each) for each in names)


def _forget(run: RunDir) -> bool:
    """Remove the run's folder and its pointer; False where anything about it is not as we left it."""
    try:
        entries = list(os.scandir(run.data))
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        known = all(OURS.fullmatch(name) for name in names) and all(_is_ours(run, name) for name in folders)
        if len(names) + len(folders) != len(entries) or not known:
            return False
        with open(run.lock, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if "run.json" not in names or not is_over(run):
                return False
            for name in folders:
                shutil.rmtree(run.data / name)
            # what makes it a run goes last: where we are interrupted, the next one begins again
            for name in sorted({*names, run.lock.name} - {"run.json", "exit_status"}):
                (run.data / name).unlink()
        for name in ("run.json", "exit_status"):
            (run.data / name).unlink()
        run.data.rmdir()
        run.pointer.unlink(missing_ok=True)
    except OSError:
        return False
    return True

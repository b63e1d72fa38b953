"""Which processes of a run train still, or are about to, though what was started is gone. Called by ``following``.

A second training beside them would write over their files, so nothing begins while there is one. An engine that was
only just started has heard nobody: what counts is what the processes themselves have left on the disk, and /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cockpit.model.names import ENV_LIFE
from cockpit.probe import lives
from cockpit.sensors.procfs import has_mark, has_title, read_bytes, read_stat

from . import processes
from .next_life import BACK
from .processes import PROC, Process
from .rundir import RunDir

YOUNG_S = 30.0
"""A Python that has not imported torch by then has other things to do."""


@dataclass(frozen=True)
class Trainer:
    """``steps``: it has made one; else it may be about to."""

    pid: int
    name: str
    steps: bool = True

    def words(self, run: str) -> str:
        """Why nothing begins, and what can be done."""
        what = "still trains" if self.steps else "is still there, and may be about to train"
        return f"process {self.pid} ({self.name}) of {run} {what}: end it (kill {self.pid}), or wait until it has ended"


def who_trains(run: RunDir, heard: Iterable[int], workers: Iterable[int]) -> Trainer | None:
    """One that does, rather than one that may. ``heard``: pids of connected probes that train; ``workers``: pids known
    to be loader workers. Nobody does on a machine that was started anew since."""
    if not processes.is_here(run.facts()):
        return None
    found = next(_certain(run, heard), None)
    return found or next(_about_to(run, workers), None)


def _certain(run: RunDir, heard: Iterable[int]) -> Iterator[Trainer]:
    for pid in heard:
        if processes.is_alive(pid, None):
            yield Trainer(pid, processes.name_of(pid))
    mark = os.fsencode(processes.mark_of(run))
    for folder in _folders(run):
        for pid, began in lives.trained(str(folder)):
            # a title of its own hides the mark; when it began tells it all the same
            if processes.is_alive(pid, began) and (has_mark(PROC, pid, mark) or has_title(PROC, pid)):
                yield Trainer(pid, processes.name_of(pid))


def _folders(run: RunDir) -> Iterator[Path]:
    yield run.data
    for _, folder in lives.folders(str(run.data)):
        yield Path(folder)
        yield Path(folder) / BACK


def _about_to(run: RunDir, workers: Iterable[int]) -> Iterator[Trainer]:
    """Of the present life, as long as nobody has made a step in it: afterwards whoever has made none is a helper, as
    the process of a ``multiprocessing.Manager`` that outlives a kill."""
    life = run.life
    present = (life, life / BACK)
    if any(True for folder in present for _ in lives.trained(str(folder))):
        return
    ours = {None} if life == run.data else {os.fsencode(folder) for folder in present}
    for process in processes.marked(run, workers):
        # who waits to take over in a life that nobody handed to ends by itself
        if not process.is_worker and _life_of(process.pid) in ours and _could_train(process):
            yield Trainer(process.pid, process.name, steps=False)


def _life_of(pid: int) -> bytes | None:
    """The folder of its life; None in the first."""
    before = os.fsencode(f"{ENV_LIFE}=")
    pairs = (read_bytes(f"/proc/{pid}/environ") or b"").split(b"\0")
    return next((pair[len(before) :] for pair in pairs if pair.startswith(before)), None)


def _could_train(process: Process) -> bool:
    """Whether it has torch loaded, or is a Python so young that it may still load it."""
    if b"/libtorch" in (read_bytes(f"/proc/{process.pid}/maps") or b""):
        return True
    try:
        is_python = "python" in os.path.basename(os.readlink(f"/proc/{process.pid}/exe"))
    except OSError:
        return False
    return is_python and age_s(process.pid) < YOUNG_S


def age_s(pid: int) -> float:
    """For how long the process has been there; infinite where it is gone."""
    stat = read_stat(PROC, pid)
    if stat is None:
        return float("inf")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - stat.started_ticks / os.sysconf("SC_CLK_TCK")

"""What a new process of a run could go on from: its newest hand-off, else the newest checkpoint of the script's own.

Called by ``crashes`` and ``by_checkpoint``. It reads files and touches none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from cockpit.history.knobs import training_loaders
from cockpit.history.state import State
from cockpit.model.counts import counted
from cockpit.model.names import HANDOFF_FOLDER
from cockpit.probe import lives
from cockpit.probe.handoff.claim import closed
from cockpit.probe.handoff.folder import DAMAGED, Refused, is_whole, manifest_of, numbers

from . import processes
from .checkpoints import Search, resume_words, search_of
from .crash_plan import Base
from .next_life import BACK
from .restart_plan import cost
from .rundir import RunDir

SIGNALLED = 128
"""From this status on it was a signal that ended it, which says nothing of what it had read."""
Found = tuple["Base | None", "str | None"]
"""The base, or why there is none."""


class Bases:
    """Of one run. ``clock`` gives seconds since the epoch."""

    def __init__(self, run: RunDir, clock: Callable[[], float]) -> None:
        self._run = run
        self._facts = run.facts()
        self.search: Search | None = search_of(self._facts, clock)

    @property
    def is_guess(self) -> bool:
        """Whether any file of a known kind would do, since no pattern was given."""
        return self.search is not None and self.search.pattern is None

    def in_vain(self) -> frozenset[str]:
        """Keys of what processes have begun from, that ended in failure before any step of theirs."""
        return frozenset(
            str(base)
            for _, folder in lives.folders(str(self._run.data))
            if (base := lives.read(folder, lives.PLAN).get("base")) is not None and failed_at_once(folder)
        )

    @property
    def resumes_itself(self) -> bool:
        """Whether it was told how the script resumes."""
        return isinstance(self._facts.get("resume_with"), str)

    def find(self, state: State, quiet: bool = True, in_vain: Container[str] = ()) -> Found:
        """``quiet``: no process of the run trains any more. ``in_vain``: keys of checkpoints that are passed over."""
        newest = self.handoff()
        if newest is not None:
            return newest, None
        if self.resumes_itself:
            return self.checkpoint(state, quiet, in_vain)
        if (why := closed(str(self._run.data / HANDOFF_FOLDER))) is not None:
            return None, f"its hand-offs cannot be gone on from: {why}"
        session = state.session
        if session is None and not state.step:
            return None, f"{state.script} ended before its first step: nothing is there to go on from, start it again"
        if session is None or not session.names:
            return None, cost(state)
        if self._are_any():
            return None, f"its hand-offs in {self._run.data / HANDOFF_FOLDER} are damaged"
        if session.every and _epochs_ended(state) < session.every:
            return Base("the start, since none was due before", "start", epochs_left=session.epochs, step=0), None
        return None, _why_none(state.handoff_failed or session.reason, session.every)

    def _are_any(self) -> bool:
        """Whether hand-offs lie there, of whatever worth."""
        try:
            return bool(numbers(str(self._run.data / HANDOFF_FOLDER)))
        except OSError:
            return False

    def handoff(self) -> Base | None:
        """The newest whole one, as far as can be told without reading its tensors."""
        folder = str(self._run.data / HANDOFF_FOLDER)
        try:
            known = numbers(folder) if closed(folder) is None else []
        except OSError:
            return None
        for number in known:
            path = os.path.join(folder, str(number))
            try:
                manifest = manifest_of(path)
                if is_whole(path, manifest) and not lives.has(path, DAMAGED):
                    return _of_handoff(number, path, manifest)
            except (Refused, OSError, ValueError, KeyError):
                continue
        return None

    def checkpoint(self, state: State, quiet: bool, in_vain: Container[str] = ()) -> Found:
        """The newest complete one, in the words that the script takes."""
        text = str(self._facts["resume_with"])
        if self.search is None:
            return Base(f"what {state.script} finds by itself", "itself", argv=tuple(resume_words(text, ""))), None
        newest, passed = self.search.newest(quiet, in_vain)
        if newest is None:
            looked = self.search.pattern or "a checkpoint's name"
            return None, "; ".join(passed) or f"no file with {looked} was found in {self.search.cwd}"
        words = tuple(resume_words(text, newest.path))
        instead = f" ({passed[0]})" if quiet and passed else ""
        return Base(f"the checkpoint {newest.path}{instead}", newest.key, argv=words, at_s=newest.at_s), None


def _epochs_ended(state: State) -> int:
    """So many are over; ``state.epoch`` stays that of the last one until another begins."""
    return max([state.epoch or 0, *(loader.epochs for loader in training_loaders(state))])


def failed_at_once(life: str) -> bool:
    """Whether the process of this life, and the one of before in its place, ended by themselves without any step."""
    ended = processes.exit_in(Path(life) / lives.EXIT)
    stepped = any(lives.has(folder, lives.STEPPED) for folder in (life, os.path.join(life, BACK)))
    return ended is not None and 0 < ended[0] < SIGNALLED and not stepped


def _why_none(reason: str | None, every: int) -> str:
    if reason is not None:
        return f"no hand-off could be written: {reason}"
    return "no hand-off was written" + ("" if every else " (--handoff-every N writes one every N epochs)")


def _of_handoff(number: int, path: str, manifest: Mapping[str, Any]) -> Base:
    epoch, step, epochs = int(manifest["epoch"]), int(manifest["step"]), manifest.get("epochs")
    return Base(
        f"the hand-off after {counted(epoch, 'epoch')}",
        f"hand-off {number}",
        path,
        epoch=epoch,
        epochs_left=max(0, int(epochs) - epoch) if isinstance(epochs, int) else None,
        step=step,
        at_s=float(manifest["created_s"]) if "created_s" in manifest else None,
    )

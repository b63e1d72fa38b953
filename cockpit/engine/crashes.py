"""What follows when the training's process has ended: its end, another try after a crash, or what a person asks for.

Called by ``engine`` and ``verbs``. ``crash_plan`` decides, ``next_life`` starts. A training that may still be running
is never started a second time, and nobody's deliberate end is undone.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cockpit.history import crash as told
from cockpit.history.state import Entry, State
from cockpit.history.trials import entry_of
from cockpit.model.crash import Crashed, Resumed
from cockpit.model.environment import OTHER_HASHES
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeAsked, ChangeMoved, TrainingEnded
from cockpit.model.knobs import ANEW, RESTART
from cockpit.probe import lives
from cockpit.probe.handoff.claim import was_handed_over
from cockpit.probe.leaving import LEFT

from .bases import Bases, failed_at_once
from .beginnings import LOST, Beginnings, Wish
from .crash_plan import (
    ENDED_WELL,
    WAITS_S,
    Base,
    Left,
    Settings,
    begun_with,
    cause_of,
    ended_under,
    good_settings,
    is_through,
    left_of,
    next_try,
    not_by_itself,
    suspects,
    without_words,
)
from .crash_plan import RESTART as BY_ITSELF
from .life_files import changed_s
from .next_environ import Known
from .next_life import BACK, why_not
from .processes import Pids, read_exit
from .record import Record
from .restart_preview import other_hashes
from .rundir import RunDir

PATIENCE_S = 30.0
"""So long may ranks outlive their launcher, or a disk be full, before a try that is due is given up."""


class Crashes:
    """``clock`` gives seconds since the epoch. ``carried``: ids in the ledger that ``restarts`` leaves to others.

    ``still``: why no process may begin beside those that are there; None where nobody trains.
    """

    def __init__(
        self,
        run: RunDir,
        record: Record,
        still: Callable[[], str | None],
        carried: set[str],
        beginnings: Beginnings,
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._beginnings = beginnings
        self._run, self._record, self.still, self._clock, self._new_id = run, record, still, clock, new_id
        self._facts = run.facts()
        self._carried = carried
        self._next: tuple[Base, Settings] | None = None
        self._due_s = 0.0
        self.bases = Bases(run, clock)
        self._given_up = False

    # ---- it has ended ----

    @property
    def waits(self) -> bool:
        """Whether no process trains, and one is to begin by itself."""
        return self._next is not None

    def after_the_end(self, status: int | None, pids: Pids | None) -> bool:
        """Whether another process follows the one that has ended."""
        state = self._record.state
        if self._given_up:
            return False
        if state.crash is not None and told.is_waiting(state):  # by an engine before this one
            self._record.happen(not_by_itself(state.crash, LOST))
            return False
        training, stopping = pids.training if pids is not None else None, state.phase == "stopping"
        cause = cause_of(status, self.left(pids), training, stopping)
        owed = not stopping and self._is_owed()
        by_itself = owed or (cause is not None and self._facts.get("on_crash") == BY_ITSELF)
        if cause is None and not owed and (stopping or not status or not self._has_begun_nothing()):
            return False
        cause = cause or f"ended with status {status} before its first step"
        if cause.startswith(told.KILLED) and (of_memory := self._beginnings.oom.words()) is not None:
            cause = f"{cause}: {of_memory}"
        base, why = self._base(state)
        crash = self._crash(state, status, cause, base, why)
        if base is None or not by_itself or status == 0:
            still = self.still() if crash.offered else None
            reason = still or (ENDED_WELL if by_itself and base is not None else None)
            self._record.happen(crash if reason is None else not_by_itself(crash, reason, offered=still is None))
            return False
        hindrance = LOST if self._beginnings.environ is None else None
        then = good_settings(state, suspects(state))
        follows = next_try(crash, state.crashes, then, base, self._waits_s())
        if hindrance or follows.wait_s is None:
            self._record.happen(not_by_itself(crash, hindrance or follows.reason))
            return False
        self._wait(crash, base, then, follows.wait_s, follows.number)
        return True

    def _is_owed(self) -> bool:
        """Whether a training that ran well was stopped for one that has ended without any step, or has handed over to
        it: then it is tried again though nobody has asked for tries."""
        plan = lives.read(str(self._run.life), lives.PLAN)
        return bool(plan.get("stopped") or plan.get("old")) and failed_at_once(str(self._run.life))

    def _has_begun_nothing(self) -> bool:
        """Whether a process that was handed to has ended by itself without a step: what it was given is there still,
        for a person who has mended the script."""
        return was_handed_over(str(self._run.life)) and failed_at_once(str(self._run.life))

    def _base(self, state: State) -> tuple[Base | None, str | None]:
        """From what the next try goes on: not from what was gone on from in vain, as long as there is anything else."""
        found = self.bases.find(state, in_vain=self.bases.in_vain())
        return found if found[0] is not None else self.bases.find(state)

    def left(self, pids: Pids | None) -> Left | None:
        """The word of the process: the one of before, that runs again in a life, has a place of its own for it."""
        life = self._run.life
        return left_of(lives.read(str(life / BACK if pids is not None and pids.back is not None else life), LEFT))

    def had_ended(self, pids: Pids | None, by_s: float) -> bool:
        """Whether the training had ended by itself before that moment: what it left is of before, or its status is."""
        left = self.left(pids)
        if left is not None and pids is not None and left.pid == pids.training:
            return left.error is None and left.at_s < by_s
        return (changed_s(str(self._run.exit_status)) or by_s) < by_s

    def _crash(self, state: State, status: int | None, cause: str, base: Base | None, why: str | None) -> Crashed:
        now_s, step, life = state.ended_s or self._clock(), state.step, str(self._run.life)
        began = lives.read(life, lives.PLAN).get("settings"), lives.read(life, lives.GO).get("at_s")
        settings = begun_with(state, *began)
        crash = Crashed(now_s, status, cause, step, settings=settings, reason=why, offered=base is not None)
        if base is None:
            return crash
        known = base.step is not None and step is not None
        return dataclasses.replace(
            crash,
            base=base.words,
            base_key=base.key,
            lost_steps=max(0, (step or 0) - (base.step or 0)) if known else None,
            lost_s=max(0.0, now_s - base.at_s) if base.at_s is not None else None,
        )

    def _wait(self, crash: Crashed, base: Base, then: Settings, wait_s: float, number: int) -> None:
        state, change = self._record.state, self._new_id()
        taken_back = suspects(state)
        back = tuple(entry.id for entry in taken_back)
        crash = dataclasses.replace(
            crash, number=number, of=len(self._waits_s()), next_s=crash.at_s + wait_s, change=change, back=back
        )
        self._record.happen(crash)
        self._carried.add(change)
        note = f"{told.cause_words(crash)}; {self._goes_on(crash, taken_back)}"
        self._record.happen(ChangeAsked(crash.at_s, change, {RESTART: ANEW}, origin="crash"))
        self._record.happen(ChangeMoved(crash.at_s, change, "queued", note=note))
        self._next, self._due_s = (base, then), time.monotonic() + wait_s

    def look(self) -> None:
        """Begin what is due; a stop that comes first ends the run."""
        crash = self._record.state.crash
        if self._next is None or crash is None:
            return
        if self._record.state.phase == "stopping":
            self.call_off("the run was stopped")
        elif time.monotonic() >= self._due_s:
            self._take_turn(str(crash.change), *self._next)

    def _take_turn(self, change: str, base: Base, settings: Settings) -> None:
        """Nothing begins while anybody of the run trains; who did so in the meantime may have come further."""
        still = self.still()
        if (reason := still or self.no_room()) is None:
            self.follow(change, self._newest(change, base), settings)
        elif time.monotonic() >= self._due_s + PATIENCE_S:
            self.call_off(reason, offered=still is None)

    def no_room(self) -> str | None:
        """Why the files of a next process could not be written."""
        return why_not(self._run)

    def _newest(self, change: str, base: Base) -> Base:
        """What is gone on from now that it begins, and told where it is another than was said."""
        state = self._record.state
        newest, _ = self._base(state)
        if newest is None or newest.key == base.key or state.crash is None:
            return base
        crash = self._crash(state, state.crash.exit_status, state.crash.cause, newest, None)
        taken_back = [entry for each in state.crash.back if (entry := entry_of(state, each)) is not None]
        note = f"{told.cause_words(state.crash)}; {self._goes_on(crash, taken_back)}"
        self._record.happen(ChangeMoved(self._clock(), change, "queued", note=note))
        return newest

    def call_off(self, reason: str, offered: bool = True) -> bool:
        """Nothing is tried any more: the run ends as its last process did. False where nothing was waiting."""
        crash = self._record.state.crash
        if self._next is None or crash is None:
            return False
        self._forget(crash, reason)
        self._record.happen(not_by_itself(crash, reason, offered))
        self._given_up = True
        return True

    def _forget(self, crash: Crashed | None, reason: str) -> None:
        self._next = None
        if crash is not None and crash.change is not None:
            self._carried.discard(crash.change)
            self._record.happen(ChangeMoved(self._clock(), crash.change, "refused", reason=reason))

    # ---- a person asks ----

    def ask(self, env: Mapping[str, str | None], change: str, given: Mapping[str, str] | None) -> dict[str, Any]:
        """Another process of a run that has ended, or waits to be tried again. ``given``: whoever asks has this
        environment. Raises CockpitError with the reason why not."""
        state, base = self._record.state, self._goes_on_from()
        ours = self._beginnings.environ is not None
        wish = self._beginnings.wish(env, None if ours else given)
        cause = state.crash.cause if state.crash is not None else ""
        crash = self._crash(state, state.exit_status, cause, base, None)
        ended = ended_under(state)
        then = good_settings(state, ended)
        note = self._goes_on(crash, ended)
        note += "" if ours else "; in the environment of the shell that asked"
        self._forget(state.crash, "somebody asked for it at once")
        self._record.happen(Resumed(self._clock(), change, by_person=True, env=then.env))
        self._carried.add(change)
        self._record.happen(ChangeAsked(self._clock(), change, wish.asked))
        self._record.happen(ChangeMoved(self._clock(), change, "queued", note=note))
        reason = self._begin(change, base, then, self._clock(), state.environment or {}, wish, state.crash)
        if reason is not None:
            raise CockpitError(reason)
        return {"id": change, "note": note, "begun": True}

    def _goes_on_from(self) -> Base:
        """Raises CockpitError with the reason why nothing can begin."""
        state = self._record.state
        if (reason := self.still() or self.no_room()) is not None:
            raise CockpitError(reason)
        # what a pattern names is what the script resumes from: should it have failed before, that has been seen to
        base, why = self._base(state) if self.waits or self.bases.is_guess else self.bases.find(state)
        if state.exit_status == 0 and state.crash is None and is_through(base, state.stopping_until_s is not None):
            raise CockpitError(f"{state.run} has ended with status 0: nothing is left to go on with")
        if base is None:
            raise CockpitError(str(why))
        return base

    def preview(self) -> dict[str, Any]:
        """What asking would come to: ``reason`` why not, else from where it goes on and what that costs."""
        state = self._record.state
        try:
            base = self._goes_on_from()
        except CockpitError as error:
            return {"reason": str(error)}
        cause = state.crash.cause if state.crash is not None else ""
        crash = self._crash(state, state.exit_status, cause, base, None)
        return {"reason": None, "goes_on": self._goes_on(crash, ended_under(state))}

    def _goes_on(self, crash: Crashed, taken_back: Sequence[Entry]) -> str:
        """From where the next process goes on, without what, and what comes in another order there."""
        sets = f"; {OTHER_HASHES}" if other_hashes(self._beginnings.environ, {}) else ""
        return f"{told.goes_on_words(crash)}{without_words(taken_back)}{sets}"

    # ---- carried out ----

    def follow(
        self, change: str, base: Base, settings: Settings, wish: Wish | None = None, stopped: bool = False
    ) -> None:
        """A process takes the place of one that has crashed, or was ``stopped`` for it."""
        known, crash = self._record.state.environment or {}, self._record.state.crash
        self._record.happen(Resumed(self._clock(), change, env=settings.env))
        ended_s = changed_s(str(self._run.exit_status)) or self._clock()
        self._begin(change, base, settings, ended_s, known, wish, crash, stopped or self._is_owed())

    def _begin(
        self,
        change: str,
        base: Base,
        settings: Settings,
        since_s: float,
        known: Known,
        wish: Wish | None,
        crash: Crashed | None,
        stopped: bool = False,
    ) -> str | None:
        """``crash``: what it follows; where it cannot be started, the run ends as after that, for this reason."""
        self._next, self._given_up = None, False
        self._carried.discard(change)
        reason = self._beginnings.start(change, base, settings, since_s, known, wish, stopped)
        if reason is not None:
            ended = read_exit(self._run)
            self._record.happen(ChangeMoved(self._clock(), change, "refused", reason=reason))
            if crash is not None:
                self._record.happen(not_by_itself(crash, reason))
            self._record.happen(TrainingEnded(self._clock(), ended[0] if ended else None))
        return reason

    def _waits_s(self) -> tuple[float, ...]:
        told_s = self._facts.get("crash_waits_s")
        return tuple(float(each) for each in told_s) if isinstance(told_s, list) else WAITS_S

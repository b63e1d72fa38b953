"""What follows when the training's process has ended: its end, another try after a crash, or what a person asks for.

Called by ``engine`` and ``verbs``. ``crash_plan`` decides, ``next_life`` starts. A training that may still be running
is never started a second time, and nobody's deliberate end is undone.
"""

from __future__ import annotations

import dataclasses
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cockpit.history import crash as told
from cockpit.history.ends import ENDED
from cockpit.history.state import State
from cockpit.history.trials import entry_of, words_of
from cockpit.model.crash import Crashed, Resumed
from cockpit.model.environment import AS_BEGAN, check_variable
from cockpit.model.errors import CockpitError, StartError
from cockpit.model.events import ChangeAsked, ChangeMoved, TrainingEnded
from cockpit.model.knobs import ANEW, ENV, RESTART, UNSET, Value
from cockpit.probe import lives
from cockpit.probe.leaving import LEFT
from cockpit.sensors.oom import OomKills

from . import preload, processes
from .bases import Bases
from .crash_plan import RESTART as BY_ITSELF
from .crash_plan import (
    WAITS_S,
    Base,
    Settings,
    begun_with,
    cause_of,
    good_settings,
    left_of,
    next_try,
    suspects,
)
from .hear import Ears
from .launch import INJECT, environment
from .likeness import likeness_of
from .next_environ import Known, next_of
from .next_life import Beginning, begin_next, environ_of
from .record import Record
from .rundir import RunDir

LOST = "cockpit's engine was lost meanwhile, and with it the environment that the training ran in"


@dataclass(frozen=True)
class Wish:
    """Another environment: ``asked`` and ``before`` as the ledger has them, ``environ`` whole, and what it was."""

    asked: Mapping[str, Value]
    before: Mapping[str, Any]
    environ: Mapping[str, str]
    was: Mapping[str, str]


class Crashes:
    """``clock`` gives seconds since the epoch. ``carried``: ids in the ledger that are not ``restarts``' to carry out.

    ``begun``: a process was started, and the engine has not taken note of it yet.
    """

    def __init__(
        self,
        run: RunDir,
        record: Record,
        ears: Ears,
        carried: set[str],
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._run, self._record, self._ears, self._clock, self._new_id = run, record, ears, clock, new_id
        self._facts = run.facts()
        self._environ: Mapping[str, str] | None = None
        self._like: Mapping[str, Any] = {}
        self._known: int | None = None
        self._carried = carried
        self._next: tuple[Base, Settings] | None = None
        self._due_s = 0.0
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._oom = OomKills()
        self.bases = Bases(run, clock)
        self.begun = self._given_up = False

    # ---- while it trains ----

    def remember(self, pids: processes.Pids | None) -> None:
        """What the process was started with: a next one needs it, and it stands nowhere but in processes."""
        self._keepers = [keeper for keeper in self._keepers if keeper.poll() is None]
        self._oom.look()
        if pids is None or pids.training == self._known:
            return
        alive = processes.is_alive(pids.training, pids.training_started)
        found = environ_of(self._run, pids, self._record.state.environment or {}) if alive else None
        if found is not None:
            self._environ, self._like, self._known = found, likeness_of(pids.keeper), pids.training
            self._oom.follow(pids.training)

    # ---- it has ended ----

    @property
    def starts(self) -> bool:
        """Whether a keeper of ours is about to start a process, or has one."""
        return any(keeper.poll() is None for keeper in self._keepers)

    @property
    def waits(self) -> bool:
        """Whether no process trains, and one is to begin by itself."""
        return self._next is not None

    def after_the_end(self, status: int | None, training: int | None, still: Sequence[int]) -> bool:
        """Whether another process follows ``training``. ``still``: processes of the run that train all the same."""
        state = self._record.state
        if self._given_up:
            return False
        if state.crash is not None and told.is_waiting(state):  # by an engine before this one
            self._record.happen(_not_by_itself(state.crash, LOST))
            return False
        cause = cause_of(status, left_of(lives.read(str(self._run.life), LEFT)), training, state.phase == "stopping")
        if cause is None:
            return False
        if cause.startswith(told.KILLED) and (of_memory := self._oom.words()) is not None:
            cause = f"{cause}: {of_memory}"
        base, why = self.bases.find(state)
        crash = self._crash(state, status, cause, base, why)
        if base is None or self._facts.get("on_crash") != BY_ITSELF:
            self._record.happen(crash)
            return False
        hindrance = f"process {still[0]} of it still trains" if still else LOST if self._environ is None else None
        then = good_settings(state, suspects(state))
        follows = next_try(crash, state.crashes, then, base, self._waits_s())
        if hindrance or follows.wait_s is None:
            self._record.happen(_not_by_itself(crash, hindrance or follows.reason))
            return False
        self._wait(crash, base, then, follows.wait_s, follows.number)
        return True

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
        back = tuple(entry.id for entry in suspects(state))
        names = [words_of(entry) for name in back if (entry := entry_of(state, name)) is not None]
        crash = dataclasses.replace(
            crash, number=number, of=len(self._waits_s()), next_s=crash.at_s + wait_s, change=change, back=back
        )
        self._record.happen(crash)
        self._carried.add(change)
        note = f"{told.cause_words(crash)}; {told.goes_on_words(crash)}"
        note += f"; without {', '.join(names)}" if names else ""
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
            self.follow(str(crash.change), *self._next)

    def call_off(self, reason: str) -> bool:
        """Nothing is tried any more: the run ends as its last process did. False where nothing was waiting."""
        crash = self._record.state.crash
        if self._next is None or crash is None:
            return False
        self._forget(crash, reason)
        self._record.happen(_not_by_itself(crash, reason))
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
        ours = self._environ is not None
        wish = self.wish(env, self._shells(given, state) if given is not None and not ours else None)
        cause = state.crash.cause if state.crash is not None else ""
        crash = self._crash(state, state.exit_status, cause, base, None)
        since_s = state.crash.at_s if state.crash is not None else state.ended_s or 0.0
        ended = [entry for entry in state.ledger if entry.state == ENDED and entry.state_s >= since_s]
        then = good_settings(state, ended)
        note = told.goes_on_words(crash) + ("" if ours else "; in the environment of the shell that asked")
        self._forget(state.crash, "somebody asked for it at once")
        self._record.happen(Resumed(self._clock(), change, by_person=True, env=then.env))
        self._carried.add(change)
        self._record.happen(ChangeAsked(self._clock(), change, wish.asked))
        self._record.happen(ChangeMoved(self._clock(), change, "queued", note=note))
        self._start(change, base, then, self._clock(), state.environment or {}, wish)
        return {"id": change, "note": note, "begun": True}

    def _goes_on_from(self) -> Base:
        """Raises CockpitError with the reason why nothing can begin."""
        state = self._record.state
        if state.exit_status == 0:
            raise CockpitError(f"{state.run} has ended with status 0: nothing is left to go on with")
        still = [pid for pid in self._ears.training_pids() if processes.is_alive(pid, None)]
        if still:
            raise CockpitError(f"process {still[0]} of {state.run} still trains: end it first")
        base, why = (self._next[0], None) if self._next is not None else self.bases.find(state)
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
        return {"reason": None, "goes_on": told.goes_on_words(crash)}

    def wish(self, env: Mapping[str, str | None], environ: Mapping[str, str] | None = None) -> Wish:
        """What ``env`` asks for, beside the environment of the present process or ``environ``. Raises CockpitError."""
        for name, value in env.items():
            check_variable(name, value)
        was = environ if environ is not None else self._environ
        if was is None:
            raise CockpitError(LOST)
        found = next_of(self._record.state.environment or {}, was, env, str(INJECT))
        if (passed_over := preload.why_not(env, found.environ)) is not None:
            raise CockpitError(passed_over)
        asked: dict[str, Value] = {ENV + name: UNSET if value is None else value for name, value in found.asked.items()}
        before = {ENV + name: value for name, value in found.before.items()}
        return Wish(asked or {RESTART: ANEW}, before or {RESTART: None}, found.environ, was)

    def _shells(self, given: Mapping[str, str], state: State) -> dict[str, str]:
        """The environment of whoever asks, with what restarts have put into the training's."""
        plain = {name: value for name, value in given.items() if not name.startswith("COCKPIT_")}
        environ = environment(plain, self._run.data, self._run.socket)
        asked = {name: now for name, (_, now) in (state.environment or {}).items() if now != AS_BEGAN}
        return dict(next_of({}, environ, asked, str(INJECT)).environ)

    # ---- carried out ----

    def follow(self, change: str, base: Base, settings: Settings, wish: Wish | None = None) -> None:
        """A process takes the place of one that was stopped for it, or has crashed."""
        known = self._record.state.environment or {}
        self._record.happen(Resumed(self._clock(), change, env=settings.env))
        try:
            ended_s = self._run.exit_status.stat().st_mtime
        except OSError:
            ended_s = self._clock()
        self._start(change, base, settings, ended_s, known, wish)

    def _start(
        self, change: str, base: Base, settings: Settings, since_s: float, known: Known, wish: Wish | None = None
    ) -> None:
        """Without a ``wish`` in the environment of the last one, save what is taken back. ``since_s``: from when on it
        is waited for. ``known``: what was asked for of the environment of the last one."""
        state = self._record.state
        wish = wish or Wish({RESTART: ANEW}, {RESTART: None}, self._environ or {}, self._environ or {})
        environ = self._as_meant(known, settings, wish.environ, wish.asked)
        back = None if RESTART in wish.asked else self._as_meant(known, settings, wish.was, {})
        self._next, self._known, self.begun, self._given_up = None, None, True, False
        self._environ = environ
        self._carried.discard(change)
        begun = Beginning(change, base, settings, environ, wish.asked, wish.before, since_s, self._like, back)
        try:
            self._keepers.append(begin_next(self._run, state, begun))
        except OSError as error:
            reason = f"the new process could not be started: {error}"
            self._record.happen(ChangeMoved(self._clock(), change, "refused", reason=reason))
            self._record.happen(TrainingEnded(self._clock(), StartError.code))

    def _as_meant(
        self, known: Known, settings: Settings, environ: Mapping[str, str], asked: Mapping[str, Value]
    ) -> dict[str, str]:
        """What changes that are taken back have put into it goes back, too; and who reports to a tracker goes on under
        its name, unless a person has chosen another."""
        gone = {name: known[name][0] for name in known if name not in settings.env and ENV + name not in asked}
        kept = {name: now for name, now in settings.env.items() if ENV + name not in asked}
        found = next_of(known, environ, {**gone, **kept}, str(INJECT)).environ
        return {**(self._record.state.identity or {}), **found}

    def _waits_s(self) -> tuple[float, ...]:
        told_s = self._facts.get("crash_waits_s")
        return tuple(float(each) for each in told_s) if isinstance(told_s, list) else WAITS_S


def _not_by_itself(crash: Crashed, reason: str | None) -> Crashed:
    return dataclasses.replace(crash, next_s=None, number=0, change=None, reason=reason, back=())

"""A process that begins where none is left: in which environment, and how it is started. Held by ``following``.

The environment of the training stands nowhere but in processes, since it may hold secrets: it is remembered here while
it runs. What a person has chosen in it always wins.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.model.environment import AS_BEGAN, check_variable
from cockpit.model.errors import CockpitError
from cockpit.model.knobs import ANEW, ENV, RESTART, UNSET, Value
from cockpit.probe import lives
from cockpit.sensors.oom import OomKills

from . import preload, processes
from .crash_plan import Base, Settings
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


class Beginnings:
    """``clock`` gives seconds since the epoch. ``environ``: of the last process, None where nobody knows it any more.

    ``begun``: a process was started, and the engine has not taken note of it yet.
    """

    def __init__(self, run: RunDir, record: Record, clock: Callable[[], float]) -> None:
        self._run, self._record, self._clock = run, record, clock
        self.environ: Mapping[str, str] | None = None
        self._like: Mapping[str, Any] = {}
        self._known: int | None = None
        self._keepers: list[subprocess.Popen[bytes]] = []
        self.oom = OomKills()
        self.begun = False

    def remember(self, pids: processes.Pids | None) -> None:
        """What the process was started with: a next one needs it, and it stands nowhere but in processes."""
        self._keepers = [keeper for keeper in self._keepers if keeper.poll() is None]
        self.oom.look()
        if pids is None or pids.training == self._known:
            return
        alive = processes.is_alive(pids.training, pids.training_started)
        if pids.back is not None and not alive:
            self._as_before()
        found = environ_of(self._run, pids, self._record.state.environment or {}) if alive else None
        if found is not None:
            self.environ, self._like, self._known = found, likeness_of(pids.keeper), pids.training
            self.oom.follow(pids.training)

    def _as_before(self) -> None:
        """The one of before ran again, and was gone before anybody saw it: the environment is that of before, too."""
        plan = lives.read(str(self._run.life), lives.PLAN)
        before, asked = plan.get("before"), plan.get("asked")
        if self.environ is not None and isinstance(before, dict) and isinstance(asked, dict):
            env = {name[len(ENV) :]: value for name, value in before.items() if name.startswith(ENV)}
            known = {name: (value, asked.get(ENV + name)) for name, value in env.items()}
            self.environ = next_of(known, self.environ, env, str(INJECT)).environ

    @property
    def starts(self) -> bool:
        """Whether a keeper of ours is about to start a process, or has one."""
        return any(keeper.poll() is None for keeper in self._keepers)

    def wish(self, env: Mapping[str, str | None], given: Mapping[str, str] | None = None) -> Wish:
        """What ``env`` asks for, beside the environment of the last process, or of a shell. Raises CockpitError."""
        for name, value in env.items():
            check_variable(name, value)
        was = self.environ if given is None else self._shells(given)
        if was is None:
            raise CockpitError(LOST)
        found = next_of(self._record.state.environment or {}, was, env, str(INJECT))
        if (passed_over := preload.why_not(env, found.environ)) is not None:
            raise CockpitError(passed_over)
        asked: dict[str, Value] = {ENV + name: UNSET if value is None else value for name, value in found.asked.items()}
        before = {ENV + name: value for name, value in found.before.items()}
        return Wish(asked or {RESTART: ANEW}, before or {RESTART: None}, found.environ, was)

    def _shells(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of whoever asks, with what restarts have put into the training's."""
        plain = {name: value for name, value in given.items() if not name.startswith("COCKPIT_")}
        environ = environment(plain, self._run.data, self._run.socket)
        known = self._record.state.environment or {}
        asked = {name: now for name, (_, now) in known.items() if now != AS_BEGAN}
        return dict(next_of({}, environ, asked, str(INJECT)).environ)

    def start(
        self,
        change: str,
        base: Base,
        settings: Settings,
        since_s: float,
        known: Known,
        wish: Wish | None = None,
        stopped: bool = False,
    ) -> str | None:
        """Without a ``wish`` in the environment of the last one, save what is taken back. ``since_s``: from when on it
        is waited for. ``known``: what was asked for of the environment of the last one. ``stopped``: that ran well.
        The reason where it could not be started."""
        state = self._record.state
        wish = wish or Wish({RESTART: ANEW}, {RESTART: None}, self.environ or {}, self.environ or {})
        environ = self._as_meant(known, settings, wish.environ, wish.asked)
        back = None if RESTART in wish.asked else self._as_meant(known, settings, wish.was, {})
        begun = Beginning(change, base, settings, environ, wish.asked, wish.before, since_s, self._like, back, stopped)
        try:
            self._keepers.append(begin_next(self._run, state, begun))
        except OSError as error:
            return f"the new process could not be started: {error}"
        self._known, self.begun, self.environ = None, True, environ
        return None

    def _as_meant(
        self, known: Known, settings: Settings, environ: Mapping[str, str], asked: Mapping[str, Value]
    ) -> dict[str, str]:
        """What changes that are taken back have put into it goes back, too; and who reports to a tracker goes on under
        its name, unless a person has chosen another."""
        gone = {name: known[name][0] for name in known if name not in settings.env and ENV + name not in asked}
        kept = {name: now for name, now in settings.env.items() if ENV + name not in asked}
        found = next_of(known, environ, {**gone, **kept}, str(INJECT)).environ
        return {**(self._record.state.identity or {}), **found}

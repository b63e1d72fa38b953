"""Whether a training has crashed, and whether and how it is tried again. Pure; ``crashes`` carries it out.

The promises in it: who ended by itself, or was told to end, is never started again; never the same failing settings
twice without having come further in between; and what a new process would lose is known before it begins.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cockpit.history.ends import ENDED
from cockpit.history.knobs import tuned_loaders, tuned_setup
from cockpit.history.state import Entry, State
from cockpit.history.trials import is_restart, words_of
from cockpit.model.counts import counted
from cockpit.model.crash import Crashed
from cockpit.model.knobs import ENV, SCRIPT, UNSET, Value
from cockpit.model.knobs import RESTART as ANEW_KNOB

WAITS_S = (5.0, 30.0, 120.0)
"""Before the first try, the second, the third; there is no fourth."""
RESTART = "restart"
"""The one word that ``--on-crash`` takes."""
TOLD = frozenset(
    number
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM")
    if (number := getattr(signal, name, None)) is not None
)
"""By these somebody, or a scheduler, tells a process to end."""
FATAL = frozenset((signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV))
"""A driver in Python passes them on as ``sys.exit(process.returncode)``, which is -11 there and status 245 here."""
TWICE = 2
ENDED_WELL = "what it was started with ended with status 0 all the same, so it is not tried again by itself"


@dataclass(frozen=True)
class Left:
    """What a process left behind as it ended, ``at_s``: ``error`` the exception that nobody caught, None where there
    was none."""

    pid: int
    error: str | None = None
    trains: bool = False
    at_s: float = math.inf


def left_of(found: Mapping[str, Any]) -> Left | None:
    """As the probe wrote it."""
    try:
        error = found.get("error")
        at_s = float(found.get("at_s", math.inf))
        return Left(int(found["pid"]), None if error is None else str(error), bool(found.get("trains")), at_s)
    except (KeyError, TypeError, ValueError):
        return None


def cause_of(status: int | None, left: Left | None, started: int | None, stopping: bool) -> str | None:
    """Why it ended, in a few words, where that was a crash; None where it was not, or nobody can tell.

    ``started``: the pid of what the keeper had started. What Python ends by itself leaves word of how; a process that
    was killed leaves none. A shell or a driver may end well though the training behind it has not (``train.py | tee``).
    """
    if stopping or status is None:
        return None
    ours = left is not None and (left.trains or left.pid == started)
    if left is not None and ours and left.error is not None and (status or left.pid != started):
        return left.error
    passed_on = 256 - status in FATAL
    number = 256 - status if passed_on else status - 128
    by_itself = left is not None and left.pid == started and (left.trains or not passed_on)
    if number <= 0 or number in TOLD or by_itself:
        return None
    try:
        return f"killed ({signal.Signals(number).name})"
    except ValueError:
        return None


@dataclass(frozen=True)
class Base:
    """What a new process goes on from. ``words`` name it, ``key`` tells it from another one; ``words`` words are put
    after the script's own (``argv``). ``path`` and ``step`` of the hand-off; ``at_s`` of the checkpoint."""

    words: str
    key: str
    path: str = ""
    argv: tuple[str, ...] = ()
    epoch: int = 0
    epochs_left: int | None = None
    step: int | None = None
    at_s: float | None = None


def has_epochs_left(base: Base | None) -> bool:
    """Whether whoever goes on from it has still to train, as far as it tells."""
    return base is not None and base.epochs_left != 0


def is_through(base: Base | None, stopped: bool) -> bool:
    """Whether status 0 says that nothing is left to go on with. A hand-off with epochs left says another thing: it was
    told to end, and ended well. What is left to do after a script's own checkpoint nobody knows: that is for who has
    ``stopped`` it."""
    if base is None or not (stopped or base.path):
        return not stopped
    return not has_epochs_left(base)


@dataclass(frozen=True)
class Settings:
    """Of a process: ``setup`` and ``loaders`` as in start.json, ``env`` as it was asked for (None: taken away)."""

    setup: Mapping[str, Value]
    loaders: Mapping[str, Mapping[str, Value]]
    env: Mapping[str, str | None]

    @property
    def word(self) -> str:
        """Tells them from others."""
        loaders = {name: dict(knobs) for name, knobs in self.loaders.items()}
        return json.dumps([dict(self.setup), loaders, dict(self.env)], sort_keys=True)


def settings_of(state: State) -> Settings:
    """What is in force."""
    env = {name: now for name, (_, now) in (state.environment or {}).items()}
    return Settings(tuned_setup(state), tuned_loaders(state), env)


def suspects(state: State) -> tuple[Entry, ...]:
    """Changes that nobody has seen to be good: they had come into force, or were just coming, and had not settled.

    A mere restart changes nothing that could be taken back.
    """
    return tuple(
        entry
        for entry in state.ledger
        if entry.state == "settling" or (entry.state == "applying" and entry.at_step is not None)
        if set(entry.asked) != {ANEW_KNOB}
    )


def ended_under(state: State) -> list[Entry]:
    """Changes that nobody has seen to be good: closed at its end, or at the crash that would have been tried again."""
    since_s = min((at_s for at_s in (state.crash and state.crash.at_s, state.ended_s) if at_s), default=0.0)
    return [entry for entry in state.ledger if entry.state == ENDED and entry.state_s >= since_s]


def without_words(taken_back: Sequence[Entry]) -> str:
    """What is added to what is told of a next process, where changes are taken back for it."""
    names = [words_of(entry) for entry in taken_back if set(entry.asked) != {ANEW_KNOB}]
    return f"; without {', '.join(names)}" if names else ""


def begun_with(state: State, settings: object, began_s: object) -> str:
    """The word of the settings in force. ``settings``: what the process began with at ``began_s``.

    As long as nothing else has landed it is that, however little the process could still tell of itself.
    """
    if not isinstance(settings, str) or not isinstance(began_s, (int, float)) or suspects(state):
        return settings_of(state).word
    landed = [entry.landed_s for entry in state.ledger if entry.landed_s is not None and not is_restart(entry)]
    return settings_of(state).word if any(landed_s >= began_s for landed_s in landed) else settings


def good_settings(state: State, taken_back: Sequence[Entry]) -> Settings:
    """The last good ones: those in force without ``taken_back``, each knob as the newest other change left it."""
    now = settings_of(state)
    setup, env = dict(now.setup), dict(now.env)
    loaders = {name: dict(knobs) for name, knobs in now.loaders.items()}
    for entry in taken_back:
        for name in entry.asked:
            if name.startswith(ENV):
                _put(env, name[len(ENV) :], _env_before(state, name, entry.change or {}))
            elif entry.loader is None:
                _put(setup, name, _before(state, taken_back, None, name))
                for knobs in loaders.values():
                    knobs.pop(name, None)
            else:
                _put(loaders.setdefault(entry.loader, {}), name, _before(state, taken_back, entry.loader, name))
    return Settings(setup, {name: knobs for name, knobs in loaders.items() if knobs}, env)


_NONE = object()


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    values.pop(name, None)
    if value is not _NONE and value != SCRIPT:
        values[name] = value


def _before(state: State, taken_back: Sequence[Entry], loader: str | None, name: str) -> Any:
    """What the newest change that stays had asked for, else what was asked for from the start."""
    stays = (
        entry.asked[name]
        for entry in reversed(state.ledger)
        if entry.state == "kept" and entry not in taken_back and entry.loader == loader and name in entry.asked
    )
    start = (state.setup if loader is None else (state.loader_setups or {}).get(loader)) or {}
    return next(stays, start.get(name, _NONE))


def _env_before(state: State, name: str, change: Mapping[str, Any]) -> Any:
    """A variable that was changed for the first time goes back to what the run began with."""
    known = (state.environment or {}).get(name[len(ENV) :])
    before = change[name][0] if name in change else None
    if known is None or before == known[0]:
        return _NONE
    return None if before in (None, UNSET) else str(before)


@dataclass(frozen=True)
class Next:
    """``wait_s``: it is tried again after so long; None: it is not, for this ``reason``."""

    wait_s: float | None
    reason: str | None = None
    number: int = 0


def next_try(
    crash: Crashed, before: Sequence[Crashed], then: Settings, base: Base | None, waits_s: Sequence[float]
) -> Next:
    """What follows ``crash`` by itself, after those ``before`` it; ``then``: the settings that it would run under."""
    if base is None:
        return Next(None, crash.reason)
    if not has_epochs_left(base):  # the script may have been about to begin another training
        return Next(None, "its loop over run.epochs(n) had ended: what follows the loop is not tried again by itself")
    number = 1 + sum(1 for each in before if each.next_s is not None)
    if number > len(waits_s):
        return Next(None, f"given up: {counted(len(waits_s), 'try was', 'tries were')} made")
    failed = sum(1 for each in (*before, crash) if (each.settings, each.base_key) == (then.word, base.key))
    if failed >= TWICE:
        return Next(None, "given up: it crashed twice under the same settings without coming any further")
    return Next(waits_s[number - 1], None, number)


def not_by_itself(crash: Crashed, reason: str | None, offered: bool = True) -> Crashed:
    """The same crash where nothing follows it by itself, for this reason."""
    offered = offered and crash.offered
    return replace(crash, next_s=None, number=0, change=None, reason=reason, back=(), offered=offered)

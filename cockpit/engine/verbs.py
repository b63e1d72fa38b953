"""The verbs that clients may ask for, by name. Called by the server through the engine, one at a time.

Each answers with plain values or raises a CockpitError: a sentence and an exit code for whoever asked.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from cockpit.history import pause
from cockpit.history.measure import baseline_of
from cockpit.history.status import status_of
from cockpit.history.trials import is_restart, words_of
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.events import BaselineSet, ChangeAsked, SetupSaved, Stopping
from cockpit.model.knobs import ENV, RESTART, UNSET
from cockpit.model.pause import ASKED, RESUMING, PauseMoved
from cockpit.wire.codec import to_plain

from . import changes
from .following import Following
from .hear import Ears
from .kernel_view import kernel_view
from .processes import Pids, name_of, read_pids, send
from .record import Record
from .rundir import RunDir
from .told import pause_message

FORCED_GRACE_S = 2.0
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox")
PASSED_ON = {"SIGUSR1": signal.SIGUSR1, "SIGUSR2": signal.SIGUSR2}
TOLD_TOO_S = 1.0
"""Who tells every process of a job has told the training itself: we have heard it too, so lately."""
_heard_s: dict[int, float] = {}
GRACE_S_AT_MOST = 7 * 86400.0


class Verbs:
    """``clock`` gives seconds since the epoch. ``grace_s`` is the run's own.

    ``told``: who has had the signal to stop, which must not come twice.
    """

    def __init__(
        self,
        run: RunDir,
        record: Record,
        ears: Ears,
        following: Following,
        clock: Callable[[], float],
        grace_s: float,
    ) -> None:
        self._run = run
        self._record = record
        self._ears = ears
        self._following = following
        self._clock = clock
        self._grace_s = grace_s
        self.told: set[int] = set()

    def do(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """Carry out ``verb``; raises CockpitError."""
        handle = _VERBS.get(verb)
        if handle is None:
            raise UsageError(f"unknown verb {verb!r}: known are {', '.join(_VERBS)}")
        return handle(self, args)

    def _set(self, args: dict[str, Any]) -> dict[str, Any]:
        knobs = args.get("knobs") or {}
        loader = args.get("loader")
        if not isinstance(knobs, dict) or not (loader is None or isinstance(loader, str)):
            raise UsageError("set takes knobs by name, and a loader or none")
        return self._carry_out(
            changes.ask(self._record.state, self._clock(), new_id(), knobs, bool(args.get("now")), loader)
        )

    def _restart(self, args: dict[str, Any]) -> dict[str, Any]:
        env = args.get("env") or {}
        texts = isinstance(env, dict) and all(value is None or isinstance(value, str) for value in env.values())
        if not texts:
            raise UsageError("restart takes environment variables by name, each with a text or null")
        return self._following.preview(env) if args.get("only_look") else self._following.ask(env, args)

    def _back_by_restart(self, stack: int, side: int, origin: str) -> dict[str, Any] | None:
        """An undo or redo of a restart is another restart, with the values of before; None where it is none."""
        found = changes.stacks(self._record.state)[stack]
        if not found or not is_restart(found[-1]):
            return None
        changes.check_free(self._record.state)
        values = {name[len(ENV) :]: pair[side] for name, pair in (found[-1].change or {}).items() if name != RESTART}
        env = {name: None if value in (None, UNSET) else str(value) for name, value in values.items()}
        asked = {name: UNSET if value is None else value for name, value in env.items()}
        back = {"of": found[-1].id, "what": words_of(found[-1]), "asked": asked}
        return {**self._following.ask(env, {}, origin), **back}

    def _undo(self, args: dict[str, Any]) -> dict[str, Any]:
        if (asked := self._back_by_restart(0, 0, "undo")) is not None:
            return asked
        return self._carry_out(changes.undo(self._record.state, self._clock(), new_id()))

    def _redo(self, args: dict[str, Any]) -> dict[str, Any]:
        if (asked := self._back_by_restart(1, 1, "redo")) is not None:
            return asked
        return self._carry_out(changes.redo(self._record.state, self._clock(), new_id()))

    def _drop(self, args: dict[str, Any]) -> dict[str, Any]:
        waiting = self._following.drop()
        if waiting and not changes.anything_waits(self._record.state):
            return {"dropped": ["restart"]}
        return self._carry_out(changes.drop(self._record.state, self._clock()))

    def give_up(self) -> None:
        """Refuse what is queued for loaders, where it has turned out that the training has none."""
        decision = changes.give_up(self._record.state, self._clock())
        if decision is not None:
            self._carry_out(decision)

    def _carry_out(self, decision: changes.Decision) -> dict[str, Any]:
        asked = {entry.id: entry for entry in self._record.state.ledger}
        for message in decision.messages:
            if message["m"] == "drop" and (entry := asked.get(message["id"])):
                self._ears.withdrawn[entry.id] = ChangeAsked(
                    entry.asked_s, entry.id, entry.asked, entry.now, entry.loader, entry.origin
                )
        # first the record, then the probe: its answer must find the change in the ledger
        for event in decision.events:
            self._record.happen(event)
        for message in decision.messages:
            self._ears.tell(message)
        return dict(decision.result)

    def _baseline(self, args: dict[str, Any]) -> dict[str, Any]:
        if baseline_of(self._record.state.current) is None:
            raise CockpitError("not enough is measured yet under the present settings: wait a few seconds")
        self._record.happen(BaselineSet(self._clock()))
        baseline = self._record.state.baseline
        return {"samples_per_s": baseline.samples_per_s if baseline else None}

    def _dump(self, args: dict[str, Any]) -> dict[str, Any]:
        """Ask every process that speaks to us where it stands. The answers come as events; what the kernel says of
        each is here at once, for those that cannot answer."""
        state = self._record.state
        if state.phase in ("ended", "lost"):
            raise CockpitError(f"{state.run} has ended: there is nothing left to look at")
        question, asked = new_id(), self._ears.members()
        for probe in asked:
            probe.send({"m": "dump", "id": question})
        pids = [probe.pid for probe in asked]
        training = read_pids(self._run)
        views = pids or ([training.training] if training else [])
        return {"id": question, "pids": pids, "kernel": {str(pid): to_plain(kernel_view(pid)) for pid in views}}

    def _saved(self, args: dict[str, Any]) -> dict[str, Any]:
        self._record.happen(SetupSaved(self._clock(), str(args.get("path", ""))))
        return {}

    def _pause(self, args: dict[str, Any]) -> dict[str, Any]:
        state, now_s = self._record.state, self._clock()
        reason = pause.why_not(state)
        if reason is not None:
            raise CockpitError(reason)
        if not pause.is_asked(state):
            self._record.happen(PauseMoved(now_s, new_id(), ASKED, state.step))
        return self._tell_pause()

    def _resume(self, args: dict[str, Any]) -> dict[str, Any]:
        state, now_s = self._record.state, self._clock()
        if state.pause is None or not (state.phase == "paused" or pause.is_asked(state)):
            raise CockpitError(f"{state.run} is not paused")
        self._record.happen(PauseMoved(now_s, state.pause.id, RESUMING, state.step))
        return self._tell_pause()

    def _tell_pause(self) -> dict[str, Any]:
        """Say what is recorded; a probe that is away just now is told as it comes back."""
        found, message = self._record.state.pause, pause_message(self._record.state)
        for probe in self._ears.members() if message is not None else ():
            probe.send(message or {})
        return {"id": found.id if found else None}

    def _stop(self, args: dict[str, Any]) -> dict[str, Any]:
        state = self._record.state
        if state.phase in ("ended", "lost"):
            raise CockpitError(f"{state.run} has ended already")
        grace_s = self._grace_s if args.get("grace_s") is None else args["grace_s"]
        if isinstance(grace_s, bool) or not isinstance(grace_s, (int, float)) or not 0 <= grace_s <= GRACE_S_AT_MOST:
            raise UsageError("the grace is a number of seconds")
        self._following.stopping()
        return self.stop_softly(grace_s, bool(args.get("force")))

    def stop_softly(self, grace_s: float | None = None, force: bool = False) -> dict[str, Any]:
        """The training alone is told; once its grace is over, everything of the run. Another process may follow."""
        state, now_s = self._record.state, self._clock()
        grace_s = self._grace_s if grace_s is None else grace_s
        until_s = now_s + min(grace_s, FORCED_GRACE_S if force else grace_s)
        pids = read_pids(self._run)
        if state.phase == "stopping" and not force:
            # asked again: the first grace goes on, and its signal is not repeated (many scripts die at a second one)
            return {"pid": state.pid, "until_s": state.stopping_until_s, "again": True}
        if state.phase == "stopping" and state.stopping_until_s is not None:
            until_s = min(until_s, state.stopping_until_s)
        elif pids is not None:
            if state.phase == "paused" or pause.is_asked(state):
                self._resume({})  # its own handlers may only note the signal, and look after the step
            inner = self._run_by_a_shell(pids)
            send(self._run, pids.training, signal.SIGTERM, pids.training_started)
            for pid in inner:
                send(self._run, pid, signal.SIGTERM)
            self.told.update((pids.training, *inner))
        self._record.happen(Stopping(now_s, until_s))
        return {"pid": state.pid, "until_s": until_s, "grace_s": until_s - now_s}

    def _signal(self, args: dict[str, Any]) -> dict[str, Any]:
        """Pass on what somebody told the process that started the run, as it would have reached a bare training."""
        number = PASSED_ON.get(str(args.get("name")))
        if number is None:
            raise UsageError(f"signals that are passed on: {', '.join(PASSED_ON)}")
        if time.monotonic() - _heard_s.get(number, float("-inf")) < TOLD_TOO_S:
            return {"told": []}  # it was told to every process there is
        pids = read_pids(self._run)
        if pids is None or self._record.state.phase in ("ended", "lost"):
            raise CockpitError("no process of the training is there to hear a signal")
        inner = self._run_by_a_shell(pids)
        if inner:
            return {"told": [pid for pid in inner if send(self._run, pid, number)]}
        return {"told": [pids.training] if send(self._run, pids.training, number, pids.training_started) else []}

    def _run_by_a_shell(self, pids: Pids) -> tuple[int, ...]:
        """What trains, where a shell was started: it ends of a signal, and does not tell what it runs."""
        return self._ears.training_pids() if name_of(pids.training) in SHELLS else ()

    def _status(self, args: dict[str, Any]) -> dict[str, Any]:
        return status_of(self._record.state, self._clock())


def note_signal(number: int, frame: FrameType | None) -> None:
    """The engine's handler of signals that are passed on."""
    _heard_s[number] = time.monotonic()


def new_id() -> str:
    """Unique over engines too: a probe ignores an id that it knows."""
    return "c" + secrets.token_hex(4)


_VERBS: dict[str, Callable[[Verbs, dict[str, Any]], dict[str, Any]]] = {
    "set": Verbs._set,
    "undo": Verbs._undo,
    "redo": Verbs._redo,
    "drop": Verbs._drop,
    "baseline": Verbs._baseline,
    "saved": Verbs._saved,
    "dump": Verbs._dump,
    "pause": Verbs._pause,
    "resume": Verbs._resume,
    "restart": Verbs._restart,
    "stop": Verbs._stop,
    "signal": Verbs._signal,
    "status": Verbs._status,
}

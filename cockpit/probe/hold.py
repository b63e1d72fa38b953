"""A pause: holds the training's thread still between two steps until somebody says that it goes on.

``receive`` and ``beat`` run in the probe's thread, ``at_step`` and ``take`` in the training's. The wait sleeps in short
naps and takes no lock: the script's signal handlers, its other threads and their forks go on as they would. It must
never hold a training that nobody could release any more, nor one that a signal has told to save or to end.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, Callable

from .guard import code_of
from .recorder import PAUSE, Recorder

NAP_S = 0.05
ALONE_S = 10.0
"""Without a connection for so long, nobody can say any more that it goes on: then it does by itself."""
NO_STEP = "no training step has ended yet: it can be paused from the first one on"
SEVERAL = "several ranks train together: the others would wait for the one that is paused, and give it up"
BETWEEN = "no training step is under way just now: it pauses at the end of the next one"
ALONE = "the cockpit's engine was gone for %.0f s: it went on by itself" % ALONE_S
SIGNALLED = "it went on for the script's own handler of %s"
INTERRUPTED = "the script was interrupted: %s"
DEAF = "the part of the probe that would hear that it goes on has failed: it went on by itself"
DESERTED = "the script's main thread has ended: it went on by itself"


class Hold:
    """``say`` hands a message to the engine; ``world`` says how many ranks train; ``keep_beating`` has the probe's
    thread run, without which nobody would hear that it goes on."""

    def __init__(
        self,
        recorder: Recorder,
        say: Callable[[dict[str, Any]], None],
        world: Callable[[], int],
        keep_beating: Callable[[], None],
    ) -> None:
        self._recorder = recorder
        self._say = say
        self._world = world
        self._keep_beating = keep_beating
        self.nap: Callable[[float], None] = time.sleep
        self.restart()

    def restart(self) -> None:
        """Nothing is asked: at install, and in a forked child, whose only thread is not the one that is held."""
        self.asked = self.holding = False
        self._id: str | None = None
        self._alone_s, self._beats = 0.0, 0
        self._why: str | None = None
        self.last: dict[str, Any] | None = None
        self._recorder.hold = False
        self._recorder.held_since = None

    # ---- the probe's thread ----

    def receive(self, message: Mapping[str, Any]) -> None:
        """``pause`` or ``resume`` from the engine; a pause that is known already is answered once more."""
        kind = message.get("m")
        if kind == "pause":
            self._pause(str(message.get("id")))
        elif kind == "resume" and self.asked:
            self.asked = False
            if not self.holding:
                self._tell("over")

    def _pause(self, name: str) -> None:
        if name == self._id:
            if self.last is not None:
                self._say(self.last)
            return
        recorder, self._id = self._recorder, name
        reason = NO_STEP if not recorder.steps else SEVERAL if self._world() > 1 else None
        if reason is not None:
            self._tell("refused", reason)
            return
        self._why = None
        self.asked = recorder.awaited = True
        self._tell("asked", BETWEEN if recorder.base is None else None)

    def beat(self, connected: bool, beat_s: float) -> None:
        """``beat_s`` have passed, and whoever speaks is heard. Beats are counted, not the clock: a suspended training
        waits for none."""
        self._beats += 1
        self._alone_s = self._alone_s + beat_s if self.holding and not connected else 0.0
        if self._alone_s >= ALONE_S:
            self._release(ALONE)

    def _release(self, why: str) -> None:
        self._why, self.asked = why, False

    def _tell(self, state: str, reason: str | None = None) -> None:
        self.last = {"m": "pause", "id": self._id, "state": state, "step": self._recorder.steps, "reason": reason}
        self._say(self.last)

    def last_words(self) -> list[dict[str, Any]]:
        """For an engine that is new or was away."""
        return [] if self.last is None else [self.last]

    def forked(self) -> None:
        """In a parent whose other thread has forked meanwhile: the probe's thread was stopped for it."""
        if self.holding:
            self._keep_beating()

    # ---- the training's thread ----

    def at_step(self) -> None:
        """A step has ended: the hooks hold at their next safe place, which most often is here."""
        if self.asked:
            self._recorder.hold = True

    def take(self) -> None:
        """Wait here, if it is still asked for. Raises what the script's own signal handlers raise meanwhile."""
        recorder = self._recorder
        recorder.hold = False
        if not self.asked or self.holding or recorder.ident() != recorder.thread:
            return
        handlers = own_handlers()
        reason = _unseen(handlers)
        if reason is not None:
            self.asked = False
            self._tell("refused", reason)
            return
        inside, recorder.inside = recorder.inside, False  # left so where the script's handler raises
        doing, began = recorder.doing, recorder.clock()
        recorder.since = recorder.held_since = began
        recorder.doing = PAUSE
        self.holding = True
        try:
            self._keep_beating()
            self._tell("paused")
            self._wait(handlers)
            recorder.inside = inside
        except BaseException as error:
            self._why = INTERRUPTED % type(error).__name__
            raise
        finally:
            self._over(doing, began)

    def _wait(self, handlers: Mapping[CodeType, str]) -> None:
        ran: list[str] = []
        beats, deaf_s = self._beats, 0.0
        watched = bool(handlers) and _in_main_thread()

        def look(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and frame.f_code in handlers:
                sys.setprofile(None)  # what the handler does is not ours to watch
                ran.append(handlers[frame.f_code])

        main = threading.main_thread()
        if watched:
            sys.setprofile(look)
        try:
            while self.asked:
                self.nap(NAP_S)
                # naps are counted, not the clock: a suspended training waits for none
                beats, deaf_s = self._beats, deaf_s + NAP_S if beats == self._beats else 0.0
                if ran:
                    self._release(SIGNALLED % ran[0])
                elif deaf_s > ALONE_S:
                    self._release(DEAF)
                elif not main.is_alive():
                    self._release(DESERTED)
        finally:
            if watched and sys.getprofile() is look:
                sys.setprofile(None)

    def _over(self, doing: str, began: int) -> None:
        """What has passed belongs to no step, no epoch and no block; those under way are measured anew."""
        recorder = self._recorder
        self.asked = self.holding = False
        now = recorder.clock()
        recorder.leave_out(now - began)
        recorder.held_since = None
        recorder.doing, recorder.since = doing, now
        recorder.setting = recorder.setting._replace()  # another object: no block spans a pause
        if recorder.trial is not None:
            recorder.trial.leave_out(now - began)
        self._tell("over", self._why)


def own_handlers() -> dict[CodeType, str]:
    """The script's own handlers of signals, by their code: one that only notes the signal is waited for in vain by
    somebody who asked the training to save or to end. Of a child's end nobody has to hear."""
    found: dict[CodeType, str] = {}
    for number in signal.valid_signals() - {signal.SIGCHLD}:
        handler = signal.getsignal(number)
        if not callable(handler) or handler is signal.default_int_handler or isinstance(handler, signal.Handlers):
            continue
        code = code_of(handler)
        if code is not None:  # what is written in C can only raise, or end the process
            found.setdefault(code, getattr(number, "name", str(number)))
    return found


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _unseen(handlers: Mapping[CodeType, str]) -> str | None:
    """Why a handler of the script's could run without being noticed here; None where there is none, or it cannot."""
    names = ", ".join(dict.fromkeys(handlers.values()))
    if handlers and not _in_main_thread():
        return "it trains beside its main thread, where its own handler of %s would not be noticed" % names
    if handlers and sys.getprofile() is not None:
        return "a profiler runs in it, and its own handler of %s would not be noticed" % names
    return None

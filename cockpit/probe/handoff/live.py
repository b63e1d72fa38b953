"""The probe's part of hand-offs: what the script has opted in with, what is wished for, and the moments of the loop.

``session`` calls ``open``, ``begun``, ``boundary`` and ``over`` in the script's thread; ``ask`` and ``receive`` come
from any. A hand-off that fails is told and costs the training nothing. It must never let a training that was to go on
begin at epoch 0 unnoticed, nor go on half restored: then the process ends with ``NOT_RESTORED`` and a sentence.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from typing import Any, Callable, NoReturn

from ...model.names import ENV_LIFE, ENV_RUN, HANDOFF_FOLDER, NOT_RESTORED
from ...model.sizes import size_words
from .. import begins_again
from ..guard import Guard, attempt
from ..leaving import error_words
from ..recorder import SAVE, Recorder
from ..registry import Registry
from . import loop_names, randomness
from .away import Away
from .beginning import torch_begins, write_down
from .claim import AGAIN, OTHERS, TAKEN, THROUGH, claim, close, only_prepares, was_handed_over
from .folder import Found, Refused, first_line, let_go, newest, numbers, owner_of, write
from .last_word import wait_until_known
from .loaders import LoaderStates
from .pace import Pace, count
from .session import Session, SessionError
from .state import gathered, put
from .structure import Structure
from .telling import ENDED, NOT_IN_LOOP, NOT_OPTED_IN, tell
from .unsaid import Unsaid
from .wish import FAILED, GONE, HELD, SPARED, WRITING, WRITTEN, Wish, Written
from .wishes import Wishes, followed

FIRST = "life-1"


class Handoff:
    """Of one process. ``say`` takes messages for the engine, ``world`` tells how many ranks there are."""

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        registry: Registry,
        hooks: Any,
        guard: Guard,
        world: Callable[[], int],
        say: Callable[[dict[str, Any]], None],
        environ: Mapping[str, str] = os.environ,
        kernels: Any = None,
        go_on: Callable[[list[Any]], None] = lambda roots: None,
    ) -> None:
        self._torch, self._recorder, self._registry = torch, recorder, registry
        self._hooks, self._guard, self._world, self._say = hooks, guard, world, say
        self._kernels, self._go_on = kernels, go_on
        self._run = environ.get(ENV_RUN, "")
        self.folder = os.path.join(self._run, HANDOFF_FOLDER)
        self._life_folder = life = environ.get(ENV_LIFE, "")
        self.life = os.path.relpath(life, self._run).replace(os.sep, "-") if life else FIRST
        """Which process of the run this is; any but the first goes on from a hand-off."""
        self.pace = Pace()
        self._change: str | None = None
        self.restart()

    def restart(self) -> None:
        """Nothing asked, nobody opted in: at install and in a forked child, which is not the one that did."""
        self.opted_in: tuple[str, ...] | None = None
        self.reason: str | None = NOT_OPTED_IN
        """Why no hand-off can be written; None where one can."""
        self.total: int | None = None
        self._outside = False
        """Whether it was told that the training is not in the loop over ``run.epochs``."""
        self.epoch = 0
        self.restored: int | None = None
        self._restored_step: int | None = None
        self.passed: list[str] = []
        """Hand-offs that were not used, each with its reason."""
        self.loaders = LoaderStates(self._torch, self._registry)
        self._unsaid = Unsaid(self._torch, self._recorder, self._kernels)
        self._hooks.on_opening = None
        self._wishes = Wishes(self._say)
        self.pace.restart()
        self._found: Found | None = None
        self._progress: tuple[int, ...] = ()
        self._script: dict[str, Any] = {}
        self._built, self._modules = Structure(self._torch, {}), 0
        self._begins_anew: str | None = None
        """What the loop keeps in names of its own, as a sentence without its end."""

    # ---- what others may know and ask; any thread ----

    def start(self, told: Mapping[str, Any]) -> None:
        """What start.json says; torch has just been imported."""
        self.pace.start(told)
        self._change = told.get("change")
        torch_begins(self._torch)

    @property
    def reason_now(self) -> str | None:
        """Why no hand-off can be written as the training stands; None where one can."""
        outside = self.reason is None and self.opted_in is not None and self.total is None and self._recorder.steps > 0
        return NOT_IN_LOOP if outside else self.reason

    @property
    def _doubt(self) -> str | None:
        """What a restart would cost, as far as is known."""
        return "; ".join(filter(None, (self._built.doubt, self._begins_anew))) or None

    def beat(self) -> None:
        """In the probe's thread: steps are made, and not in the loop that was spoken of; or that has begun now."""
        reason, was = self.reason_now, self._outside
        self._outside = reason == NOT_IN_LOOP
        if self._outside and not was:
            self._say(self.message())
            self._wishes.answer_all(NOT_IN_LOOP)

    def message(self) -> dict[str, Any]:
        """What the script has opted in with, and how far its loop is; ``reason``: why nothing can be handed over."""
        return {
            "m": "session", "names": list(self.opted_in or ()), "epochs": self.total, "epoch": self.epoch,
            "restored": self.restored, "every": self.pace.every, "sparing": self.pace.sparing,
            "reason": self.reason_now, "passed": list(self.passed), "step": self._restored_step, "change": self._change,
            "doubt": self._doubt, "script": self._script,
        }  # fmt: skip

    def _tell(self) -> None:
        """In the script's thread, which alone may look at what it has imported: a module may be on its way in."""
        self._script = begins_again.of_this_process()
        self._say(self.message())

    def last_words(self) -> list[dict[str, Any]]:
        """For an engine that is new or was away: the state, and the answer to each wish."""
        return [] if self.opted_in is None else [self.message(), *list(self._wishes.answers.values())]

    def receive(self, message: Mapping[str, Any]) -> None:
        """``handoff`` (a wish), ``handoff_drop``, or ``handoff_every``."""
        kind, name = message.get("m"), str(message.get("id"))
        if kind == "handoff_every":
            self.pace.every = count(message.get("n"))
            self._say(self.message())
        elif kind == "handoff_drop":
            self._wishes.drop(name)
        elif kind == "handoff":
            life, limit = message.get("life"), message.get("limit_bytes")
            self.ask(Wish(name, str(life) if life else None, limit if isinstance(limit, int) else None))

    def ask(self, wish: Wish) -> None:
        """A hand-off at the next end of an epoch; answered at once where there will be none."""
        self._wishes.ask(wish, self.reason_now)

    # ---- the script calls cockpit.session ----

    def open(self, things: dict[str, Any]) -> Session:
        """The one session of this process, restored where it is to go on; a mere loop where there can be none."""
        if self.opted_in is not None and self.reason != ENDED:
            raise SessionError("cockpit.session(…) was called twice: call it once, with everything that is to go on")
        if only_prepares():
            self.reason = TAKEN
            return Session()
        session: Session | None = None
        self._script = begins_again.of_this_process()
        self.reason, error = attempt(self._why_not)
        if error is None and self.reason is None:
            self.opted_in = tuple(things)
            session, error = attempt(self._opened, things)
        if self.reason in OTHERS:
            close(self.folder, OTHERS[self.reason])
        if error is not None:  # of our own making
            self.reason = first_line(error)
            if self.life != FIRST:
                self.leave(self.reason)
        self._tell()
        return session if session is not None and self.reason is None else Session()

    def _opened(self, things: dict[str, Any]) -> Session:
        session = Session(self, things)
        self._built = Structure(self._torch, things, self._recorder.living_optimizers)
        if self.life != FIRST:
            self._restore(session)
        self._hooks.on_opening = self.loaders.on_opening
        return session

    def _why_not(self) -> str | None:
        if self.opted_in is not None:
            return AGAIN
        if self._world() > 1:
            reason = "this training has %d ranks, and a hand-off is of one process" % self._world()
            if self.life != FIRST and numbers(self.folder):
                self.leave(reason)
            return reason
        taken = claim(self.folder, self.life)
        if taken is None and self.life == FIRST:
            write_down(self.folder)
        return taken

    def _restore(self, session: Session) -> None:
        found, self.passed = newest(self._torch, self.folder, owner_of(self._run, session.things))
        for sentence in self.passed:
            tell(sentence)
        if found is None and (numbers(self.folder) or was_handed_over(self._life_folder)):
            self.leave("no hand-off in %s can be used" % self.folder, *self.passed)
        if found is None:
            tell("this run has no hand-off yet, so the training begins at epoch 0")
            return
        for name, thing in session.things.items():
            _, error = attempt(thing.load_state_dict, found.state["things"][name])
            if error is not None:
                self.leave("%s could not be restored from hand-off %d: %s" % (name, found.number, first_line(error)))
        found.state["things"].clear()  # what they have not kept is free again
        self._found = found
        self.restored = session.restored = self.epoch = found.manifest["epoch"]
        session.step = self._restored_step = found.manifest["step"]
        tell("goes on from hand-off %d: epoch %d, step %d" % (found.number, self.epoch, session.step))

    def leave(self, sentence: str, *more: str) -> NoReturn:
        """The training cannot go on as it should, and must not do anything else. ``more`` was told already."""
        tell(sentence + "; the training ends here rather than begin anew")
        self.reason = "; ".join((sentence, *more))
        self._tell()
        raise SystemExit(NOT_RESTORED)

    # ---- the script's loop ----

    def begun(self, session: Session, left: range) -> None:
        """The first epoch is asked for: from here on random numbers must be those of an uninterrupted run."""
        self.total = left.stop
        self._begins_anew = loop_names.sentence(loop_names.carried(*session.place)) if session.place else None
        self._registry.epoch_begins()
        attempt(self._unsaid.note, session.things)  # without it there will be no hand-off, which says why
        if self._found is not None:
            torch, state, things = self._torch, self._found.state, session.things
            self._guard.run("kernels", self._go_on, self._unsaid.roots(things, state.get("unsaid", {})))
            parts = self._recorder, self._registry, self.loaders, self._unsaid
            told, error = attempt(put, torch, state, things, *parts)
            if error is not None:
                self.leave("what goes along with it could not be restored: %s" % first_line(error))
            for sentence in told:
                tell(sentence)
            self._found = None
        self._progress = self._how_far()
        self._tell()

    def _how_far(self) -> tuple[int, ...]:
        recorder = self._recorder
        return recorder.steps, recorder.optimizer_steps, recorder.backwards

    def boundary(self, session: Session, done: int) -> None:
        """``done`` epochs are over. Of what fails in here, the training hears nothing."""
        if self.opted_in is None:
            return  # a child that the script has forked goes on with the loop
        self.epoch = done
        self._guard.run("handoff", self._at_boundary, session, done)
        if "handoff" in self._guard.reasons:
            self.reason = "the probe's own part 'handoff' has failed: %s" % self._guard.reasons["handoff"]
            self._wishes.answer_all(self.reason)

    def _at_boundary(self, session: Session, done: int) -> None:
        changed = self._built.look()
        if changed or len(sys.modules) != self._modules:  # said before anybody asks for a new process
            self.reason, self._modules = self._built.cannot, len(sys.modules)
            self._tell()
        wishes = self._wishes.taken()
        due = self.pace.is_due(done)
        if wishes or (due and not self.pace.is_too_soon(self._recorder.clock())):
            self._hand_over(session, wishes, done)
        elif due and not self.pace.spares:
            self.pace.spares = True
            self._say(Written(None, epoch=done).message(None, SPARED))
        self.loaders.epoch_over()
        attempt(self._unsaid.epoch_begins, session.things)  # without it they go along, whether needed or not
        self._registry.epoch_begins()
        self._progress = self._how_far()

    def _hand_over(self, session: Session, wishes: list[Wish], done: int) -> None:
        recorder = self._recorder
        began, was = recorder.clock(), recorder.doing
        recorder.doing, recorder.since = SAVE, began
        for wish in wishes:
            self._wishes.answer(wish, Written(None, epoch=done), WRITING)
        limits = [wish.limit_bytes for wish in wishes if wish.limit_bytes is not None]
        written, error = attempt(self._write, session, done, min(limits) if limits else None)
        if error is not None:
            written = Written(str(error) if isinstance(error, Refused) else first_line(error))
            let_go(error)
        for wish in wishes:
            wait_until_known(wish.life, recorder.setting.change)
        now = recorder.clock()
        recorder.doing, recorder.since = was, now
        recorder.leave_out(now - began)
        self.pace.tried(now - began, now)
        written = written._replace(seconds=(now - began) / 1e9)
        if not wishes:
            self._say(written.message(None, FAILED if written.reason else WRITTEN))
        gone: str | None = None
        for wish in wishes:
            state, reason = followed(wish, written, (self.total or 0) - done, self._doubt)
            self._wishes.answer(wish, written._replace(reason=reason), state)
            gone = wish.id if state == GONE else gone
        if gone is not None:
            Away(self._torch, recorder, self._guard, functools.partial(self._held, gone)).leave()

    def _held(self, name: str, what: str) -> None:
        """The script has swallowed its end, and was about to do something else."""
        self._say({"m": "handoff", "id": name, "state": HELD, "what": what})

    def _write(self, session: Session, done: int, limit: int | None) -> Written:
        torch, recorder = self._torch, self._recorder
        if self._world() > 1:
            raise Refused("this training has %d ranks, and a hand-off is of one process" % self._world())
        if self._how_far() == self._progress:
            raise Refused("no step was seen in epoch %d: the loop over run.epochs(n) is not the training's" % done)
        if self._built.cannot is not None:
            raise Refused(self._built.cannot)
        state, contents = gathered(torch, session.things, recorder, self._registry, self.loaders, self._unsaid)
        if limit is not None and contents.nbytes > limit:
            raise Refused("it would be %s, more than the %s allowed" % (size_words(contents.nbytes), size_words(limit)))
        step = state["counts"]["steps"]
        facts = {"epoch": done, "epochs": self.total, "step": step, "life": self.life}
        path, nbytes = write(torch, self.folder, owner_of(self._run, session.things), facts, state, contents)
        randomness.put_if_moved(torch, state["random"])
        return Written(None, path, nbytes, 0.0, done, step)

    def over(self) -> None:
        """The loop has ended, was left, or the process ends in it: nothing keeps the script's things any longer."""
        if self.opted_in is None:
            return
        self.reason, self._hooks.on_opening, self._built = ENDED, None, Structure(self._torch, {})
        self._wishes.answer_all(ENDED)
        self._tell()

    def leave_word(self) -> None:
        """The process ends: where nobody threw anything after its loop, its training has ended. Not for the script's
        thread: the disk may hang."""
        if self.reason == ENDED and self.epoch == self.total and error_words() is None:
            close(self.folder, THROUGH)

    def at_exit(self) -> None:
        """The process ends."""
        if self.restored is not None and self.total is None:
            tell("run.epochs(n) was never gone through: what this process trained began anew")
        self._wishes.answer_all("the training has ended")

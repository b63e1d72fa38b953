"""What the keys ask of the run: says at once why something cannot be, else asks the engine beside the picture.

Held by the app. At most one change is under way; presses meanwhile are gathered into the next one, and what was
chosen shows on its row until the engine's own state says the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cockpit.history.knobs import KnobRow, training_loaders
from cockpit.history.pause import is_asked
from cockpit.history.pause import words as pause_words
from cockpit.history.report import again_words, setup_of
from cockpit.history.restart import newest
from cockpit.history.save import DEFAULT_FILE, save
from cockpit.history.stacks import ANSWER_S, Dump, dump_of
from cockpit.history.state import State
from cockpit.model.errors import CockpitError
from cockpit.model.knobs import UNSET, Value

from . import dialogs, paste
from .clean import clean
from .wishes import flipped, moved, plan, waiting, why_not, why_not_knob, why_not_now
from .words import label_of

if TYPE_CHECKING:
    from .cockpit import Cockpit

LOOK_S = 0.1
SHOWN_S = 3.0
"""A choice is shown this long after the engine's answer, if its state never says the same."""


class Doing:
    """``wanted``: values chosen and not yet seen in the state, by knob."""

    def __init__(self, app: Cockpit) -> None:
        self._app = app
        self.wanted: dict[str, Value] = {}
        self._unsent: dict[str, Value] = {}
        self._answered: dict[str, float] = {}
        self._asking = self._dumping = False
        self._told: set[tuple[str, Value | None]] = set()
        self._pause_told: str | None = None

    # ---- knobs ----
    def move(self, by: int) -> None:
        """The chosen knob one press further."""
        knob = self._usable("more" if by > 0 else "less")
        if knob is not None:
            self._want(knob, moved(knob, self._next(knob), by), "that is as far as it goes")

    def flip(self) -> None:
        """The chosen knob's other value."""
        knob = self._usable("flip")
        if knob is not None:
            self._want(knob, flipped(knob, self._next(knob)), "space flips switches; the arrow keys change this one")

    def _next(self, knob: KnobRow) -> Value | None:
        return self.wanted.get(knob.name, knob.next)

    def _usable(self, action: str) -> KnobRow | None:
        view = self._app.view()
        reason = self._refusal(action)
        knob = view.knobs[view.cursor] if view.knobs else None
        if reason is None and knob is not None:
            state = self._app.feed.state
            reason = why_not_knob(knob, {**(waiting(state) if state else {}), **self.wanted})
        if reason is not None:
            self._app.toast(reason)
            return None
        return knob

    def _want(self, knob: KnobRow, value: Value | None, otherwise: str) -> None:
        if value is None:
            self._app.toast(f"{knob.name}: {otherwise}")
            return
        self.wanted[knob.name] = self._unsent[knob.name] = value
        self._answered.pop(knob.name, None)
        self._app.paint()
        if not self._asking:
            self._asking = True
            self._app.beside(self._send())

    async def _send(self) -> None:
        """Bring the engine's queue to what is wanted, one change at a time."""
        try:
            while self._unsent and self._app.feed.state is not None:
                batch, self._unsent = self._unsent, {}
                steps = plan(self._app.feed.state, batch)
                try:
                    if steps.drop:
                        await self._app.feed.command("drop")
                    if steps.ask:
                        await self._app.feed.command("set", knobs=dict(steps.ask), now=False, loader=None)
                except CockpitError as error:
                    self._failed(batch, error)
                else:
                    now_s = self._app.clock()
                    self._answered.update(dict.fromkeys(batch, now_s))
        finally:
            self._asking = False
            self.settle()
            self._app.paint()

    def _failed(self, batch: dict[str, Value], error: CockpitError) -> None:
        for name in batch:
            if name not in self._unsent:
                self.wanted.pop(name, None)
        self._app.toast(clean(str(error)))

    def settle(self) -> None:
        """Forget choices that the state shows by now, or should have shown long ago."""
        if not self.wanted:
            return
        rows = {row.name: row for row in self._app.view().knobs}
        for name in [name for name in self.wanted if name in self._answered]:
            row, value = rows[name], self.wanted[name]
            seen = row.next == value or (row.next is None and row.in_force == value)
            if seen or self._app.clock() - self._answered[name] > SHOWN_S:
                del self.wanted[name], self._answered[name]

    def tell(self) -> None:
        """Say what a queued value would do besides, as soon as the training has said so, and before it is applied."""
        state = self._app.feed.state
        loaders = training_loaders(state) if state is not None else ()
        reports = [report for loader in loaders for report in loader.knobs if report.note and report.asked is not None]
        told = {(report.name, report.asked): report for report in reports}
        for at in told.keys() - self._told:
            self._app.toast(f"{label_of(at[0])}: {clean(told[at].note or '')}")
        self._told = set(told)
        if state is not None:
            before, self._pause_told = self._pause_told, pause_words(state) or ""
            news = before is not None and state.pause is not None and state.pause.reason is not None
            if news and self._pause_told not in ("", before):
                self._app.toast(clean(self._pause_told))

    # ---- the run ----
    def apply(self) -> None:
        """What is queued lands in the middle of the epoch."""
        state = self._able("apply")
        if state is None:
            return
        asked = {**waiting(state), **self.wanted}
        reason = why_not_now(state, asked)
        if reason is not None:
            self._app.toast(reason)
            return
        self._unsent = {}
        self._app.beside(self._apply(asked))

    async def _apply(self, asked: dict[str, Value]) -> None:
        await self._command("set", None, {"knobs": asked, "now": True, "loader": None})
        # what was chosen in this very moment went along: nobody else answers it
        unanswered = (name for name in asked if self.wanted.get(name) == asked[name])
        self._answered.update(dict.fromkeys(unanswered, self._app.clock()))

    def undo(self) -> None:
        """Drop the queue; with none, take the last change back."""
        state = self._able("undo")
        if state is None:
            return
        queue = {**waiting(state), **self.wanted}
        stage = newest(state)
        self.wanted.clear()
        self._unsent.clear()
        if stage is not None and stage.can_drop and state.phase not in ("ended", "lost"):
            also = ", and the queue with it" if queue else ""
            self._app.beside(self._command("drop", f"the restart is called off{also}", {}))
        elif queue:
            self._app.beside(self._command("drop", "the queue is dropped", {}))
        elif any(entry.state in ("kept", "settling") for entry in state.ledger):
            self._app.beside(self._command("undo", None, {}))
        else:
            self._app.toast("nothing to undo: no change is in force")

    def pause(self) -> None:
        """Stand still after the step under way; paused, or about to be: go on."""
        state = self._able("pause")
        if state is None:
            return
        if state.phase == "paused" or is_asked(state):
            self._app.beside(self._command("resume", "it goes on", {}))
        else:
            self._app.beside(self._command("pause", "it pauses when the step under way has ended; p goes on", {}))

    def simple(self, verb: str, done: str | None = None, **args: Any) -> None:
        """A verb that needs nothing else."""
        if self._able(verb) is not None:
            self._app.beside(self._command(verb, done, args))

    def refused(self, action: str) -> bool:
        """Whether it cannot be had now; then it is said why."""
        return self._able(action) is None

    def _able(self, action: str) -> State | None:
        reason = self._refusal(action)
        if reason is not None:
            self._app.toast(reason)
            return None
        return self._app.feed.state

    def _refusal(self, action: str) -> str | None:
        return why_not(action, self._app.feed.state, self._app.readonly and action != "save")

    async def _command(self, verb: str, done: str | None, args: dict[str, Any]) -> None:
        try:
            await self._app.feed.command(verb, **args)
        except CockpitError as error:
            self._app.toast(clean(str(error)))
        else:
            if done is not None:
                self._app.toast(done)
        self._app.paint()

    # ---- looking ----
    def dump(self) -> None:
        """Ask where threads and workers stand, and show it when they have answered."""
        if self._able("dump") is not None and not self._dumping:
            self._dumping = True
            self._app.toast("asking where its threads and workers stand")
            self._app.beside(self._dump())

    async def _dump(self) -> None:
        app = self._app
        try:
            await self._show_dump(await app.feed.command("dump"))
        except CockpitError as error:
            app.toast(clean(str(error)))
        finally:
            self._dumping = False

    async def _show_dump(self, asked: dict[str, Any]) -> None:
        app = self._app
        found, tries = Dump(), int(ANSWER_S / LOOK_S)
        while tries and not found.whole and app.feed.state is not None:
            tries -= 1
            await asyncio.sleep(LOOK_S)
            found = dump_of(asked, app.feed.state)
        while len(app.screen_stack) > 1:  # whoever has opened something meanwhile looks at that first
            await asyncio.sleep(LOOK_S)
        app.box(lambda width, height, top: dialogs.dump_rows(found, width, height, top, app.glyphs), {"D": ""})

    # ---- saving ----
    def save(self) -> None:
        """Path and differences first; after ``enter`` the file, and the command that uses it."""
        app, state = self._app, self._able("save")
        if state is None:
            return
        path = Path(DEFAULT_FILE).resolve()
        scripts = {row.name: row.script for row in app.view().knobs}
        setup = setup_of(state)
        changes = [(name, scripts.get(name.rpartition(":")[2]), value) for name, value in setup.items()]
        for name, (began, now) in (state.environment or {}).items():
            changes.append((name, UNSET if began is None else began, UNSET if now is None else now))
        if not changes:
            app.toast("nothing to save: every setting is as the script has it")
            return
        app.box(
            lambda width, height, top: dialogs.save_rows(str(path), changes, state, path.exists(), width, app.glyphs),
            {"enter": "save", "s": "save"},
            lambda word: self._save(state, path),
        )

    def paste(self) -> None:
        """The setup as lines for the script: to the terminal's clipboard, and shown, since not every one takes them."""
        app, state = self._app, self._app.feed.state
        if state is None:
            return
        try:
            found = paste.lines_to_paste(state)
        except CockpitError as error:
            app.toast(clean(str(error)))
            return
        app.copy_to_clipboard("\n".join(found.lines) + "\n")
        app.box(
            lambda width, height, top: paste.paste_rows(found, width, height, top, app.glyphs),
            {"enter": "", "q": "", "y": ""},
        )

    def _save(self, state: State, path: Path) -> None:
        app = self._app
        try:
            save(state, path)
        except CockpitError as error:
            app.toast(clean(str(error)))
            return
        if not app.feed.over:
            app.beside(self._command("saved", None, {"path": str(path)}))
        command = clean(again_words(state, path.name))
        app.box(
            lambda width, height, top: dialogs.saved_rows(str(path), command, width, app.glyphs),
            {"enter": "", "q": ""},
        )

"""What the keys do in the view of hot restarts: choose variables, ask what that would cost, and ask for it.

Held by the app. Nothing restarts on one key: the view opens first, then a box says what it costs. The engine is asked
what a restart would come to while the view is open, and says no itself.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from cockpit.history import handoffs
from cockpit.history.crash import cause_words, is_waiting, words
from cockpit.history.restart import under_way
from cockpit.history.trials import entry_of
from cockpit.model.crash import Crashed
from cockpit.model.environment import BY_NAME, check_variable
from cockpit.model.errors import CockpitError, UsageError

from .clean import clean
from .draft import MORE, Draft, cursor_of, names_of
from .restart import confirm_rows
from .view import View

if TYPE_CHECKING:
    from .cockpit import Cockpit

AGAIN_S = 2.0
"""So often the engine is asked again: the epoch goes on, and what is in the way may be gone."""
LINE = "NAME=VALUE, or NAME alone to take it away; enter keeps it, esc leaves it"
ASKED = "a new process gets ready; the training hands over when its epoch ends (u calls it off)"


class Restarting:
    """``draft``: what is chosen while the view is open, None while it is not."""

    def __init__(self, app: Cockpit) -> None:
        self._app = app
        self._asking = self._under_way = self._costly = False
        self._crash: Crashed | None = None
        self._asked_s = float("-inf")
        self.draft: Draft | None = None

    def open(self) -> None:
        """The view, with nothing chosen."""
        self.draft = Draft()
        self._asked_s = float("-inf")
        self.look()

    def close(self) -> None:
        """The picture again; what was chosen and not asked for is forgotten."""
        self.draft = None

    def tick(self) -> None:
        """While the view is open: what would it come to now?"""
        self._tell_crash()
        view = self._app.view()
        self._tell_cost(view)
        stage, before = under_way(view.known), self._under_way
        self._under_way = stage is not None
        if self.draft is not None and before and not self._under_way:
            self.draft = replace(self.draft, answer=None)  # what was in the way is over
            self.look()
        elif self.draft is not None and self._app.clock() - self._asked_s >= AGAIN_S:
            self.look()

    def _tell_crash(self) -> None:
        """Once, as soon as it is known: what ended it, and what follows or can be done."""
        state = self._app.feed.state
        news = state.crash if state is not None else None
        if state is not None and news is not None and news != self._crash:
            # a notice stands still: it says nothing that counts down
            entry = entry_of(state, news.change) if is_waiting(state) else None
            told = entry.note if entry is not None else words(state, self._app.clock())
            self._app.toast(clean(told or cause_words(news)))
        self._crash = news

    def _tell_cost(self, view: View) -> None:
        """Once: that the hand-offs that were asked for by number are dear."""
        costly = handoffs.warning(view.known, view.now_s)
        if costly is not None and not self._costly:
            self._app.toast(costly)
        self._costly = self._costly or costly is not None

    def look(self) -> None:
        """Ask the engine; a second question waits for the next tick."""
        if not self._asking and self._app.feed.state is not None:
            self._asking, self._asked_s = True, self._app.clock()
            self._app.beside(self._look())

    async def _look(self) -> None:
        env = dict(self.draft.env) if self.draft is not None else {}
        try:
            answer = await self._app.feed.command("restart", env=env, only_look=True)
        except CockpitError as error:
            answer = {"reason": str(error)}
        finally:
            self._asking = False
        if self.draft is not None and dict(self.draft.env) == env:
            self.draft = self.draft.answered(answer)
        else:
            self._asked_s = float("-inf")  # something else is chosen meanwhile
        self._app.paint()

    # ---- choosing ----
    def move(self, by: int) -> None:
        """The row above or below."""
        draft = self.draft
        if draft is not None:
            names = names_of(draft, self._app.view().known)
            at = cursor_of(draft, self._app.view().known) + by
            self.draft = replace(draft, chosen=names[max(0, min(len(names) - 1, at))])
            self._app.paint()

    def _chosen(self) -> str:
        draft, state = self.draft or Draft(), self._app.view().known
        return names_of(draft, state)[cursor_of(draft, state)]

    def change(self, by: int) -> None:
        """The next or the former of the values that people give it; before the first: as it runs."""
        draft, name = self.draft, self._chosen()
        known = BY_NAME.get(name)
        if draft is None or self._is_refused():
            return
        if known is None:
            self._app.toast("enter types a value for this one")
            return
        values = [value for value in known.like if value != draft.values.get(name)]
        at = values.index(draft.env[name] or "") + 1 if draft.env.get(name) in values else 0
        at = max(0, min(len(values), at + by))
        if at:
            self._put(name, values[at - 1])
        else:
            self._forget(name)

    def type(self) -> None:
        """Type a value for the chosen variable, or any other."""
        from .typed import Typed

        app, name = self._app, self._chosen()
        draft = self.draft
        if draft is None or self._is_refused():
            return
        value = draft.env.get(name, draft.values.get(name))
        before = "" if name == MORE else f"{name}={value or ''}"
        app.push_screen(Typed("E", LINE, before, (app.look, app.mono)), self._typed)

    def _typed(self, text: str | None) -> None:
        if text is not None and text.strip() and self.draft is not None:
            name, equals, value = text.partition("=")
            name = name.strip()
            try:
                check_variable(name, value if equals else None)
            except UsageError as error:
                self._app.toast(clean(str(error)))
            else:
                self._put(name, value if equals else None)
        self._app.paint()

    def _put(self, name: str, value: str | None) -> None:
        draft = self.draft or Draft()
        runs = draft.values.get(name, name)
        if name in draft.values and value == runs:
            self._forget(name)
        else:
            self._choose(replace(draft, env={**draft.env, name: value}, chosen=name))

    def _forget(self, name: str) -> None:
        draft = self.draft or Draft()
        self._choose(replace(draft, env={other: value for other, value in draft.env.items() if other != name}))

    def _choose(self, draft: Draft) -> None:
        self.draft = draft
        self.look()
        self._app.paint()

    # ---- asking ----
    def undo(self) -> bool:
        """Forget what was chosen and not asked for; whether there was something."""
        if self.draft is None or not self.draft.env:
            return False
        self._choose(replace(self.draft, env={}))
        return True

    def ask(self) -> None:
        """What it costs in a box; after ``enter`` it is asked for."""
        app, draft = self._app, self.draft
        if draft is None or self._is_refused():
            return
        if under_way(app.view().known) is not None:
            app.toast("a restart is under way: u calls it off while it is not handed over")
            return
        reason = draft.answer.get("reason") if draft.answer is not None else None
        if reason:
            app.toast(clean(str(reason)))
            return
        app.box(
            lambda width, height, top: confirm_rows(app.view(), self.draft or draft, width, height),
            {"enter": "restart", "q": ""},
            lambda word: self._restart(dict(draft.env)),
        )

    def _restart(self, env: dict[str, str | None]) -> None:
        if self.draft is not None:
            self.draft = replace(self.draft, env={})
        self._app.beside(self._ask(env))

    async def _ask(self, env: dict[str, str | None]) -> None:
        app = self._app
        try:
            # once no process is left to take it from, the environment is that of whoever asks
            answer = await app.feed.command("restart", env=env, environ=dict(os.environ))
        except CockpitError as error:
            if self.draft is not None and not self.draft.env:
                self.draft = replace(self.draft, env=env)  # what was chosen is still there to be changed
            app.toast(clean(str(error)))
        else:
            note = clean(str(answer.get("note") or ASKED))
            app.toast(f"a new process {note}" if answer.get("begun") else note)
        self.look()
        app.paint()

    def _is_refused(self) -> bool:
        return self._app.doing.refused("restart")

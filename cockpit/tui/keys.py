"""What each key does on the screen itself: one method an action, named as the table of actions names it.

Held by the app, which looks the method up. What is asked of the run goes through ``doing``; while the output has the
whole screen, the keys that choose and change a setting move through it instead.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cockpit.history.actions import OUTPUT, RUN

from . import dialogs
from .about import about_rows
from .glyphs import SETS
from .palette import CHOICES
from .reading import AT_REST, Reading, followed, jumped, scrolled, shifted
from .rows import cells
from .tried import lines_of
from .view import SPANS_S

if TYPE_CHECKING:
    from .cockpit import Cockpit

TWICE_S = 2.0
"""ctrl+c twice within this time leaves."""


class Keys:
    """``span``: seconds a chart column, ``chosen``: the setting under the cursor."""

    def __init__(self, app: Cockpit) -> None:
        self._app = app
        self._interrupted_s = float("-inf")

    # ---- settings ----
    def jump(self, number: int) -> None:
        """Choose a setting by its digit."""
        if not self._app.view().page:
            self._choose(number - 1, beyond=False)

    def up(self) -> None:
        """The setting above, or the line above."""
        self._move(-1)

    def down(self) -> None:
        """The setting below, or the line below."""
        self._move(1)

    def _move(self, by: int) -> None:
        if self._app.restarting.draft is not None:
            self._app.restarting.move(by)
        elif self._app.view().page:
            self.scroll(by)
        else:
            self._choose(self._app.view().cursor + by)

    def _choose(self, at: int, beyond: bool = True) -> None:
        knobs = self._app.view().knobs
        if knobs and (beyond or at < len(knobs)):
            self._app.chosen = knobs[max(0, min(len(knobs) - 1, at))].name
            self._app.paint()

    def less(self) -> None:
        """One less; in the output: further left."""
        self._change(-1)

    def more(self) -> None:
        """One more; in the output: further right."""
        self._change(1)

    def _change(self, by: int) -> None:
        app = self._app
        if app.reading.open:
            app.reading = shifted(app.reading, by, max(map(cells, app.tail.lines), default=0))
            app.paint()
        elif app.restarting.draft is not None:
            app.restarting.change(by)
        elif app.tried is None:
            app.doing.move(by)

    def flip(self) -> None:
        """The other value of a switch; in the output: a page down."""
        if self._app.view().page:
            self.page_down()
        else:
            self._app.doing.flip()

    def about(self) -> None:
        """Everything about the chosen setting; in the view of restarts: type a value."""
        app, view = self._app, self._app.view()
        if view.restart is not None:
            app.restarting.type()
        if view.page:
            return
        app.chosen = view.knobs[view.cursor].name if view.knobs else ""
        app.box(lambda width, height, top: about_rows(app.view(), width, height, top), {"enter": "", "q": ""})

    # ---- the run ----
    def apply(self) -> None:
        """What is queued, now."""
        self._app.doing.apply()

    def undo(self) -> None:
        """Drop the queue, or take the last change back; in the view of restarts first what is chosen there."""
        if not self._app.restarting.undo():
            self._app.doing.undo()

    def redo(self) -> None:
        """Apply again what was undone."""
        self._app.doing.simple("redo")

    def pause(self) -> None:
        """Stand still after this step; go on."""
        self._app.doing.pause()

    def restart(self) -> None:
        """The view of hot restarts; in it: ask for one."""
        app = self._app
        if app.restarting.draft is not None:
            app.restarting.ask()
        else:
            app.reading, app.tried = AT_REST, None
            app.restarting.open()
        app.paint()

    def dump(self) -> None:
        """Where its threads and workers stand."""
        self._app.doing.dump()

    def baseline(self) -> None:
        """What runs now is the baseline."""
        self._app.doing.simple("baseline", done="what runs now is the baseline")

    def save(self) -> None:
        """Show what would be saved and where; write it after ``enter``."""
        self._app.doing.save()

    def paste(self) -> None:
        """Copy the setup as lines for the script."""
        self._app.doing.paste()

    # ---- the output ----
    def output(self) -> None:
        """Every trial on the whole screen, then the training's output, then the picture again."""
        app = self._app
        app.restarting.close()
        if app.reading.open:
            app.reading = AT_REST
        elif app.tried is None:
            app.tried = 0
        else:
            app.reading, app.tried = Reading(open=True), None
        app.paint()

    def find(self) -> None:
        """Ask what to look for in the output, and mark it while it is typed."""
        from .typed import Typed

        app, before = self._app, self._app.reading

        def typed(pattern: str) -> None:
            app.look_for(pattern)

        def closed(pattern: str | None) -> None:
            if pattern is None:  # esc: as it was
                app.reading = before
                app.look_for(before.pattern, jump=False)
            app.paint()

        app.open_output()
        words = "find in the output: enter keeps it, n and N jump, esc leaves it"
        app.push_screen(Typed("/", words, before.pattern, (app.look, app.mono), typed), closed)

    def next(self) -> None:
        """The next line that holds what is looked for."""
        self._jump(1)

    def previous(self) -> None:
        """The line before that holds it."""
        self._jump(-1)

    def _jump(self, by: int) -> None:
        app = self._app
        if not app.reading.pattern:
            app.toast("nothing is looked for: / finds in the output")
            return
        app.open_output()
        app.look_for(app.reading.pattern, jump=False)
        app.reading = jumped(app.reading, by, app.tail.first, len(app.tail.lines), app.page_lines)
        app.paint()

    def follow(self) -> None:
        """Follow the newest line, or stand still."""
        app = self._app
        if not app.reading.open:
            app.open_output()
        else:
            app.reading = followed(app.reading, app.tail.first, len(app.tail.lines), app.page_lines)
        app.paint()

    def scroll(self, by: int) -> None:
        """So many lines down."""
        app = self._app
        if app.restarting.draft is not None:
            app.restarting.move(by)
            return
        if app.tried is not None:
            last = len(lines_of(app.view(), app.size.width)) - app.page_lines
            app.tried = max(0, min(app.tried + by, last))
            app.paint()
            return
        app.reading = scrolled(app.reading, by, app.tail.first, len(app.tail.lines), app.page_lines)
        app.paint()

    def page_up(self) -> None:
        """A page of the output up."""
        self._page(-1)

    def page_down(self) -> None:
        """A page of the output down."""
        self._page(1)

    def _page(self, by: int) -> None:
        if self._app.tried is None and self._app.restarting.draft is None:
            self._app.open_output()
        self.scroll(by * max(1, self._app.page_lines - 1))

    # ---- the screen ----
    def span(self) -> None:
        """How much time the charts show."""
        self._app.span = SPANS_S[(SPANS_S.index(self._app.span) + 1) % len(SPANS_S)]
        self._app.paint()

    def theme(self) -> None:
        """Dark, light."""
        app = self._app
        if app.look not in CHOICES:
            app.toast("this terminal has sixteen colours, and one look for them")
            return
        app.look = CHOICES[(CHOICES.index(app.look) + 1) % len(CHOICES)]
        app.screen.set_class(app.look == "light", "light")
        app.paint()

    def glyphs(self) -> None:
        """Braille, block, plain."""
        names = list(SETS)
        self._app.glyphs = SETS[names[(names.index(self._app.glyphs.name) + 1) % len(names)]]
        self._app.paint()

    def suspend(self) -> None:
        """Back to the shell; ``fg`` returns."""
        self._app.action_suspend_process()

    def close(self) -> None:
        """Take a notice away, then what was looked for, then the output; never leave."""
        app = self._app
        if app.hush():
            pass
        elif app.reading.pattern and app.reading.open:
            app.look_for("", jump=False)
        else:
            app.reading, app.tried = AT_REST, None
            app.restarting.close()
        app.paint()

    def help(self) -> None:
        """The page of keys, those of the output first where that is what one sees."""
        app, view = self._app, self._app.view()
        first = RUN if view.restart is not None else OUTPUT if view.page else ""
        app.box(
            lambda width, height, top: dialogs.help_rows(width, height, top, app.glyphs, first), {"question_mark": ""}
        )

    def leave(self) -> None:
        """Leave: at once when the training has ended, else ask how."""
        app, state = self._app, self._app.feed.state
        if state is None:
            app.exit("detached")
        elif app.feed.over:
            app.exit("ended")
        else:
            self._interrupted_s = time.monotonic()
            keys = {"d": "detach", "s": "stop", "q": "", "ctrl+c": "again"}
            app.box(lambda width, height, top: dialogs.leave_rows(state, width, app.glyphs), keys, self._left)

    def _left(self, how: str) -> None:
        app = self._app
        if how == "detach" or (how == "again" and time.monotonic() - self._interrupted_s < TWICE_S):
            app.exit("detached")
        elif how == "stop":
            app.doing.simple("stop", done="the training was asked to stop; it may save first", force=False)

"""The Textual app: ticks, keys and dialogs round one canvas. It decides nothing about the run and draws nothing itself.

Made by ``run_screen`` (and by tests with a fake link). One immutable view a tick or key press; keys repaint at once
and never wait for data; commands run beside, and their errors become one-sentence toasts.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from cockpit.session.actions import ACTIONS, IN_LEAVE

from . import dialogs
from .boxes import Box, Drawn
from .canvas import Canvas
from .doing import Doing
from .feed import Feed, Line
from .frame import frame
from .glyphs import SETS
from .log import Tail
from .palette import CHOICES
from .terminal import Terminal
from .view import SPANS_S, View

TICK_S = 0.5
TOAST_S = 5.0
TWICE_S = 2.0
"""ctrl+c twice within this time leaves."""


class Cockpit(App[str], inherit_bindings=False):
    """The screen of one run. Its answer is how it was left: ``detached`` or ``ended``."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; background: #101418; }
    Screen.light { background: #fbfbf8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(",".join(action.keys), f"key_{action.name}", action.help, show=False)
            for action in ACTIONS
            if action.name not in (*IN_LEAVE, "jump")
        ),
        *(Binding(str(number), f"jump({number})", "jump to a setting", show=False) for number in range(1, 10)),
    ]

    def __init__(
        self,
        connect: Callable[[], Awaitable[Line]],
        data_dir: Path,
        terminal: Terminal,
        *,
        readonly: bool = False,
        clock: Callable[[], float] = time.time,
        revive: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(ansi_color=terminal.mono)
        self.animation_level = "none"
        self.clock = clock
        self.feed = Feed(connect, clock, revive, on_first=self.paint)
        self.doing = Doing(self)
        self.readonly, self.mono = readonly, terminal.mono
        self.look = "sixteen" if self.console.color_system == "standard" else "dark"
        self.glyphs, self.span, self.cursor = SETS[terminal.glyphs], SPANS_S[0], 0
        self._tail = Tail(data_dir / "output.log")
        self._canvas = Canvas()
        self._tasks: set[asyncio.Task[None]] = set()
        self._interrupted_s = float("-inf")
        self._notice, self._notice_until_s = "", 0.0

    def compose(self) -> ComposeResult:
        """One canvas: everything is drawn in it."""
        yield self._canvas

    def on_mount(self) -> None:
        """The line to the engine, and the clock of the picture."""
        self.beside(self.feed.run())
        self.set_interval(TICK_S, self.tick)
        # after a suspension the terminal holds nothing of ours any more
        self.app_resume_signal.subscribe(self, lambda app: app.screen.refresh())
        self.paint()

    def on_unmount(self) -> None:
        """Let go of the engine."""
        for task in self._tasks:
            task.cancel()

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` beside the picture; cancelled when the screen closes; its mistakes close the screen."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # a picture that silently stands still would be a wrong one
            self.exit(return_code=1, message=Text("".join(traceback.format_exception(error))))

    def leave_from_outside(self) -> None:
        """A signal came, or the terminal is gone; called from any thread, also before the loop runs or after it."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.exit, "detached")

    # ---- the picture ----
    def view(self) -> View:
        """All that the picture is drawn from, as of now."""
        feed = self.feed
        return View(
            state=feed.state,
            now_s=self.clock(),
            cursor=self.cursor,
            wanted=dict(self.doing.wanted),
            link_lost_s=feed.lost_s,
            glyphs=self.glyphs,
            mono=self.mono,
            readonly=self.readonly,
            column_s=self.span,
            lines=self._tail.lines,
            notice=self._notice if self.clock() < self._notice_until_s else "",
        )

    def tick(self) -> None:
        """Twice a second: what is new, drawn."""
        self._tail.read()
        self.doing.settle()
        self.paint()

    def paint(self) -> None:
        """Draw now. Cheap: rows that did not change are not painted."""
        width, height = self.size
        self._canvas.show(frame(self.view(), width, height), width, self.look, self.mono)

    def on_resize(self) -> None:
        """The terminal has another size."""
        self.call_later(self.paint)

    def toast(self, sentence: str) -> None:
        """Say one sentence; it is data, never markup."""
        self._notice, self._notice_until_s = sentence, self.clock() + TOAST_S
        self.paint()

    # ---- keys ----
    def action_jump(self, number: int) -> None:
        """Choose a setting by its digit."""
        if number <= len(self.view().knobs):
            self.cursor = number - 1
            self.paint()

    def action_key_up(self) -> None:
        """The setting above."""
        self._choose(self.cursor - 1)

    def action_key_down(self) -> None:
        """The setting below."""
        self._choose(self.cursor + 1)

    def _choose(self, at: int) -> None:
        self.cursor = max(0, min(len(self.view().knobs) - 1, at))
        self.paint()

    def action_key_less(self) -> None:
        """One less."""
        self.doing.move(-1)

    def action_key_more(self) -> None:
        """One more."""
        self.doing.move(1)

    def action_key_flip(self) -> None:
        """The other value of a switch."""
        self.doing.flip()

    def action_key_apply(self) -> None:
        """What is queued, now."""
        self.doing.apply()

    def action_key_undo(self) -> None:
        """Drop the queue, or take the last change back."""
        self.doing.undo()

    def action_key_redo(self) -> None:
        """Apply again what was undone."""
        self.doing.simple("redo")

    def action_key_baseline(self) -> None:
        """What runs now is the baseline."""
        self.doing.simple("baseline", done="what runs now is the baseline")

    def action_key_save(self) -> None:
        """Show what would be saved and where; write it after ``enter``."""
        self.doing.save()

    def action_key_paste(self) -> None:
        """Copy the setup as lines for the script."""
        self.doing.paste()

    def action_key_span(self) -> None:
        """How much time the charts show."""
        self.span = SPANS_S[(SPANS_S.index(self.span) + 1) % len(SPANS_S)]
        self.paint()

    def action_key_theme(self) -> None:
        """Dark, light."""
        if self.look not in CHOICES:
            self.toast("this terminal has sixteen colours, and one look for them")
            return
        self.look = CHOICES[(CHOICES.index(self.look) + 1) % len(CHOICES)]
        self.screen.set_class(self.look == "light", "light")
        self.paint()

    def action_key_glyphs(self) -> None:
        """Braille, block, plain."""
        names = list(SETS)
        self.glyphs = SETS[names[(names.index(self.glyphs.name) + 1) % len(names)]]
        self.paint()

    def action_key_suspend(self) -> None:
        """Back to the shell; ``fg`` returns."""
        self.action_suspend_process()

    def action_key_close(self) -> None:
        """Nothing is open: esc takes a notice away and never leaves."""
        self._notice = ""
        self.paint()

    def action_key_help(self) -> None:
        """The page of keys."""
        self.box(
            lambda width, height, top: dialogs.help_rows(width, height, top, self.glyphs),
            {"question_mark": ""},
        )

    def action_key_leave(self) -> None:
        """Leave: at once when the training has ended, else ask how."""
        state = self.feed.state
        if state is None:
            self.exit("detached")
        elif self.feed.over:
            self.exit("ended")
        else:
            self._interrupted_s = time.monotonic()
            keys = {"d": "detach", "s": "stop", "q": "", "ctrl+c": "again"}
            self.box(lambda width, height, top: dialogs.leave_rows(state, width, self.glyphs), keys, self._left)

    def _left(self, how: str) -> None:
        if how == "detach" or (how == "again" and time.monotonic() - self._interrupted_s < TWICE_S):
            self.exit("detached")
        elif how == "stop":
            self.doing.simple("stop", done="the training was asked to stop; it may save first", force=False)

    def box(self, drawn: Drawn, keys: dict[str, str], then: Callable[[str], None] | None = None) -> None:
        """Open a box; ``then`` hears the word of the key that closed it."""

        def closed(word: str | None) -> None:
            self.paint()
            if then is not None and word:
                then(word)

        self.push_screen(Box(drawn, keys, lambda: (self.look, self.mono)), closed)

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
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from cockpit.history.actions import ACTIONS, IN_LEAVE

from .boxes import Box, Drawn
from .canvas import Canvas
from .doing import Doing
from .feed import Feed, Line
from .frame import frame
from .glyphs import SETS
from .keys import Keys
from .log import Tail
from .reading import Finder, Reading, jumped
from .restarting import Restarting
from .terminal import Terminal
from .view import SPANS_S, View

TICK_S = 0.5
TOAST_S = 5.0


class Cockpit(App[str], inherit_bindings=False):
    """The screen of one run. Its answer is how it was left: ``detached`` or ``ended``."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; background: #101418; }
    Screen.light { background: #fbfbf8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(",".join(action.keys), f"key('{action.name}')", action.help, show=False)
            for action in ACTIONS
            if action.name not in (*IN_LEAVE, "jump")
        ),
        *(Binding(str(number % 10), f"jump({number})", "jump to a setting", show=False) for number in range(1, 11)),
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
        self.doing, self.restarting = Doing(self), Restarting(self)
        self.readonly, self.mono = readonly, terminal.mono
        self.look = "sixteen" if self.console.color_system == "standard" else "dark"
        self.glyphs, self.span, self.chosen = SETS[terminal.glyphs], SPANS_S[0], ""
        self.keys, self.reading, self.tail = Keys(self), Reading(), Tail(data_dir / "output.log")
        self._finder = Finder()
        self.tried: int | None = None
        self._canvas = Canvas()
        self._tasks: set[asyncio.Task[None]] = set()
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
        self.tail.read()
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
            chosen=self.chosen,
            wanted=dict(self.doing.wanted),
            link_lost_s=feed.lost_s,
            glyphs=self.glyphs,
            mono=self.mono,
            readonly=self.readonly,
            column_s=self.span,
            lines=self.tail.lines,
            first_line=self.tail.first,
            older=self.tail.older,
            reading=self.reading,
            tried=self.tried,
            restart=self.restarting.draft,
            notice=self._notice if self.clock() < self._notice_until_s else "",
        )

    def tick(self) -> None:
        """Twice a second: what is new, drawn."""
        self.tail.read()
        self._find()
        self.doing.settle()
        self.doing.tell()
        self.restarting.tick()
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
    def action_key(self, name: str) -> None:
        """What the table of actions calls ``name``."""
        getattr(self.keys, name)()

    def action_jump(self, number: int) -> None:
        """Choose a setting by its digit."""
        self.keys.jump(number)

    def hush(self) -> bool:
        """Take the notice away; whether there was one."""
        said, self._notice = self._notice and self.clock() < self._notice_until_s, ""
        return bool(said)

    # ---- the output ----
    @property
    def page_lines(self) -> int:
        """Lines of output that the whole screen has room for."""
        return max(1, self.size.height - 5)

    def open_output(self) -> None:
        """Give the output the whole screen."""
        self.reading, self.tried = replace(self.reading, open=True), None
        self.restarting.close()

    def look_for(self, pattern: str, jump: bool = True) -> None:
        """Mark ``pattern`` in the output; ``jump``: and show the newest line that holds it."""
        self.reading = replace(self.reading, pattern=pattern, hit=self.reading.hit if not jump else None)
        self._find()
        if jump:
            self.reading = jumped(self.reading, 1, self.tail.first, len(self.tail.lines), self.page_lines)
        self.paint()

    def _find(self) -> None:
        tail, reading = self.tail, self.reading
        hits = self._finder.hits(reading.pattern, tail.lines, tail.first, tail.whole) if reading.open else ()
        if hits != reading.hits:
            self.reading = replace(reading, hits=hits)

    def box(self, drawn: Drawn, keys: dict[str, str], then: Callable[[str], None] | None = None) -> None:
        """Open a box; ``then`` hears the word of the key that closed it."""

        def closed(word: str | None) -> None:
            self.paint()
            if then is not None and word:
                then(word)

        self.push_screen(Box(drawn, keys, lambda: (self.look, self.mono)), closed)

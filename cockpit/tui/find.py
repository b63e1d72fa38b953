"""The line in which a person types what to look for in the output; letter keys are off while it has the focus.

Pushed by ``keys`` over the footer. What is typed is told at once, so that it is marked while it grows; ``enter`` keeps
it, ``esc`` goes back to what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Find(ModalScreen[str]):
    """Answers with the pattern, or None after ``esc``."""

    CSS = """
    Find { align: left bottom; background: transparent; }
    Find Horizontal { height: 1; padding: 0 1; background: #22303d; }
    Find Static { width: 2; color: #56B4E9; text-style: bold; background: #22303d; }
    Find Input { width: 1fr; height: 1; border: none; padding: 0; background: #22303d; color: #d7dde5; }
    Find .light, Find .light Static { background: #d6e6f3; color: #1d2228; }
    Find .mono, Find .mono Static { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "as it was", show=False, priority=True),
    ]

    def __init__(self, before: str, typed: Callable[[str], None], look: str, mono: bool) -> None:
        super().__init__()
        self._before, self._typed, self._look, self._mono = before, typed, look, mono

    def compose(self) -> ComposeResult:
        """One line."""
        classes = "mono" if self._mono else self._look
        words = "find in the output: enter keeps it, n and N jump, esc leaves it"
        with Horizontal(classes=classes):
            yield Static("/")
            yield Input(self._before, placeholder=words, compact=True, select_on_focus=True, classes=classes)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Mark it at once."""
        self._typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it."""
        self._close(event.value)

    def action_leave(self) -> None:
        """Go back to what was there."""
        self._close(None)

    def _close(self, pattern: str | None) -> None:
        # the input tells of enter by a message: a second one may come when this screen has closed already
        if self.app.screen is self:
            self.dismiss(pattern)

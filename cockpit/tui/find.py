"""The line in which a person types what to look for in the output; letter keys are off while it has the focus.

Pushed by ``keys`` over the footer. What is typed is told at once, so that it is marked while it grows; ``enter`` keeps
it, ``esc`` goes back to what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input


class Find(ModalScreen[str]):
    """Answers with the pattern, or None after ``esc``."""

    CSS = """
    Find { align: left bottom; background: transparent; }
    Find Input { width: 1fr; height: 1; border: none; padding: 0 1; background: #22303d; color: #d7dde5; }
    Find Input.mono { background: ansi_default; color: ansi_default; text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "as it was", show=False, priority=True),
    ]

    def __init__(self, before: str, typed: Callable[[str], None], mono: bool) -> None:
        super().__init__()
        self._before, self._typed, self._mono = before, typed, mono

    def compose(self) -> ComposeResult:
        """One line."""
        yield Input(
            self._before,
            placeholder="find in the output: enter keeps it, n and N jump, esc leaves it",
            compact=True,
            select_on_focus=True,
            classes="mono" if self._mono else "",
        )

    def on_input_changed(self, event: Input.Changed) -> None:
        """Mark it at once."""
        self._typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Go back to what was there."""
        self.dismiss(None)

"""One line in which a person types: what to look for in the output, or a variable; letters are no keys meanwhile.

Pushed over the footer. What is typed may be told at once; ``enter`` answers with it, ``esc`` with None: as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Typed(ModalScreen[str]):
    """``mark`` stands before the line, ``words`` in it while it is empty; ``look`` and whether there are no colours."""

    CSS = """
    Typed { align: left bottom; background: transparent; }
    Typed Horizontal { height: 1; padding: 0 1; background: #22303d; }
    Typed Static { width: 2; color: #56B4E9; text-style: bold; background: #22303d; }
    Typed Input { width: 1fr; height: 1; border: none; padding: 0; background: #22303d; color: #d7dde5; }
    Typed .light, Typed .light Static { background: #d6e6f3; color: #1d2228; }
    Typed .mono, Typed .mono Static { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "as it was", show=False, priority=True),
    ]

    def __init__(
        self, mark: str, words: str, before: str, look: tuple[str, bool], typed: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._mark, self._words, self._before, self._typed = mark, words, before, typed
        self._look, self._mono = look

    def compose(self) -> ComposeResult:
        """One line."""
        classes = "mono" if self._mono else self._look
        marks = self._typed is not None  # what was looked for is replaced by what is typed; a value is gone on with
        with Horizontal(classes=classes):
            yield Static(self._mark)
            yield Input(self._before, placeholder=self._words, compact=True, select_on_focus=marks, classes=classes)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Mark it at once."""
        if self._typed is not None:
            self._typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it."""
        self._close(event.value)

    def action_leave(self) -> None:
        """Go back to what was there."""
        self._close(None)

    def _close(self, text: str | None) -> None:
        # the input tells of enter by a message: a second one may come when this screen has closed already
        if self.app.screen is self:
            self.dismiss(text)

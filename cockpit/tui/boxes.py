"""The dialogs as Textual screens on top of the picture: each shows rows from ``dialogs`` and answers with a word.

Pushed by the app. The figures below go on; a box is drawn anew when the terminal changes its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from .canvas import Canvas
from .rows import Row

Drawn = Callable[[int, int, int], Sequence[Row]]
"""(width, height, first line) of the terminal to the rows of a box."""


class Box(ModalScreen[str]):
    """A box whose ``keys`` answer with a word; ``esc`` answers with an empty one."""

    CSS = """
    Box { align: center middle; background: transparent; }
    Box Canvas { width: auto; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer('')", "close", show=False),
        Binding("up,k", "scroll_by(-1)", "up", show=False),
        Binding("down,j", "scroll_by(1)", "down", show=False),
    ]

    def __init__(self, drawn: Drawn, keys: dict[str, str], look: Callable[[], tuple[str, bool]]) -> None:
        super().__init__()
        self._drawn, self._look, self._top = drawn, look, 0
        for key, word in keys.items():
            self._bindings.bind(key, f"answer('{word}')", show=False)

    def compose(self) -> ComposeResult:
        """One canvas."""
        yield Canvas()

    def on_mount(self) -> None:
        """Draw as soon as there is a size."""
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()

    def draw(self) -> None:
        """Paint the box for the terminal as it is now."""
        width, height = self.app.size
        rows = self._drawn(width, height, self._top)
        theme, mono = self._look()
        canvas = self.query_one(Canvas)
        canvas.show(rows, max((sum(len(text) for text, _ in row) for row in rows), default=0), theme, mono)
        canvas.refresh(layout=True)

    def action_answer(self, word: str) -> None:
        """Close with an answer."""
        if self.app.screen is self:  # two keys at once answer once
            self.dismiss(word)

    def action_scroll_by(self, lines: int) -> None:
        """Move what the box shows."""
        self._top = max(0, self._top + lines)
        self.draw()

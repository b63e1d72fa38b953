"""The one widget that draws: rows in, lines out, and only lines that changed are painted again.

Used by the screen and by every dialog. It goes past Textual's style cache (no border, no padding, no per-cell work):
rows become strips once, and a row equal to the one last painted costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from .paint import strip_of
from .rows import Row


class Canvas(Widget):
    """Shows the rows last given to ``show``."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Row] = []
        self._strips: list[Strip] = []
        self._look: tuple[int, str, bool] = (0, "dark", False)

    def show(self, rows: Sequence[Row], width: int, theme: str, mono: bool) -> None:
        """Paint ``rows``; those equal to what stands there are left alone."""
        look = (width, theme, mono)
        everything = look != self._look or len(rows) != len(self._rows)
        changed: list[Region] = []
        strips = list(self._strips) if not everything else []
        for at, row in enumerate(rows):
            if everything:
                strips.append(strip_of(row, width, theme, mono))
            elif row != self._rows[at]:
                strips[at] = strip_of(row, width, theme, mono)
                changed.append(Region(0, at, width, 1))
        self._rows, self._strips, self._look = list(rows), strips, look
        if everything:
            self.refresh()
        elif changed:
            self.refresh(*changed)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of ``crop``, from what was painted last."""
        blank = Strip.blank(crop.width)
        lines = []
        for y in range(crop.y, crop.bottom):
            if y >= len(self._strips):
                lines.append(blank)
                continue
            strip = self._strips[y]
            whole = crop.x == 0 and crop.width == strip.cell_length
            lines.append(strip if whole else strip.crop_extend(crop.x, crop.right, None))
        return lines

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """As wide as the rows."""
        return self._look[0]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As tall as the rows."""
        return len(self._rows)

"""Follows the training's output file and keeps its newest line, cleaned. Asked by the engine twice a second.

Reads the end of the file only: neither megabytes a second, nor one endless line, nor a training that truncates the
file under us may cost more than a few reads. It never writes to the file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

READ_AT_MOST = 64 * 1024
LINE_AT_MOST = 200
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # device control and other strings
    r"|[\x1b]\[[0-?]*[ -/]*[@-~]?|\x9b[0-?]*[ -/]*[@-~]?"  # colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Output:
    """``line`` is the newest line with something in it, ``written`` all bytes ever seen in the file."""

    def __init__(self, path: Path, written: int = 0) -> None:
        self._path = path
        self._size: int | None = None
        self._rest = b""
        self.line = ""
        self.written = written

    def look(self) -> bool:
        """Read what is new; whether anything was."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if self._size is None:
                    # the engine may be a new one: what an older one has counted is not counted again
                    self.written = max(self.written, size)
                elif size == self._size:
                    return False
                before = 0 if self._size is None or size < self._size else self._size
                self.written += size - before if self._size is not None else 0
                start = max(before, size - READ_AT_MOST)
                file.seek(start)
                piece = file.read(size - start)
        except OSError:
            return False
        self._size = size
        if start != before or before == 0:
            self._rest = b""
        self._take(piece)
        return True

    def _take(self, piece: bytes) -> None:
        text = (self._rest + piece)[-READ_AT_MOST:]
        self._rest = text.rpartition(b"\n")[2]
        for line in reversed(text.split(b"\n")):
            if found := clean(line):
                self.line = found
                return


def clean(line: bytes) -> str:
    """One line as a terminal would leave it: after the last carriage return, without escapes, cut at 200 characters."""
    text = _ESCAPES.sub("", line.decode("utf-8", "replace"))
    for part in reversed(text.split("\r")):
        shown = _CONTROLS.sub("", part.replace("\t", " ")).strip()
        if shown:
            return shown[:LINE_AT_MOST]
    return ""

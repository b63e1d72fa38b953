"""One JSON object a line. Used by probe, engine and clients; it never opens a socket itself.

``Lines`` takes bytes as they arrive, in whatever pieces, and gives whole messages. A line that is not a JSON
object, or is longer than ``LIMIT``, is counted in ``bad`` and skipped: a garbled peer costs nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..model.names import SCHEMA

LIMIT = 8 * 1024 * 1024
"""Longest line that is kept, in bytes: a snapshot of a long run is about 200 kB."""


def pack(message: dict[str, Any]) -> bytes:
    """One message as one line; NaN and infinities become null, since JSON has no word for them."""
    try:
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(message), separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def is_newer(message: Mapping[str, Any]) -> bool:
    """Whether it comes from a later cockpit than this one: then nothing in it is guessed at."""
    schema = message.get("schema", SCHEMA)
    return not isinstance(schema, int) or schema > SCHEMA


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


class Lines:
    """Collects bytes into messages. ``bad`` counts lines that were no message."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipping = False
        self.bad = 0

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages completed by ``data``, oldest first."""
        *whole, rest = data.split(b"\n")
        found = []
        for piece in whole:
            line = bytes(self._rest) + piece
            self._rest.clear()
            if self._skipping:
                self._skipping = False
            elif len(line) > LIMIT:
                self.bad += 1
            elif line.strip():
                found.extend(self._parse(line))
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > LIMIT:
                self._rest.clear()
                self._skipping = True
                self.bad += 1
        return found

    def _parse(self, line: bytes) -> list[dict[str, Any]]:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            return [message]
        self.bad += 1
        return []

"""A run's events on disk: append-only segments that each open with a snapshot. A recording is this folder.

Written by the engine alone; read by whoever wants to know a run without one. A start folds one segment. Total size is
bounded: older segments lose their samples, then their blocks, then their snapshot, never a change or an epoch.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cockpit.model.events import Event
from cockpit.wire.codec import event_from_plain, event_to_plain, from_plain, to_plain
from cockpit.wire.framing import pack

from .fold import fold
from .state import State

SEGMENT_BYTES = 1_000_000
_NAME = re.compile(r"journal-(\d{6,})\.jsonl(\.gz)?")


class Journal:
    """The writing end. Never raises for a full or vanished disk: the run goes on, ``lost`` counts what is missing."""

    def __init__(self, folder: Path, state: State, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._file = -1
        self._path: Path | None = None
        self._written = 0
        self._torn = False
        self.lost = 0
        self._open_segment(state)

    def append(self, event: Event, after: State) -> None:
        """Write ``event``; ``after`` is the state with it, which opens the next segment when this one is full."""
        self._write(pack(event_to_plain(event)))
        if self._written > self._segment_bytes:
            self._open_segment(after)

    def close(self) -> None:
        """Nothing more will come."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: bytes) -> None:
        if self._torn:
            line = b"\n" + line
        try:
            done = os.write(self._file, line)
        except OSError:
            self.lost += 1
            return
        self._torn = done < len(line)
        self.lost += self._torn
        self._written += done

    def _open_segment(self, state: State) -> None:
        old, older_file = self._path, self._file
        numbers = [number for number, _ in segments(self._folder)]
        path = self._folder / f"journal-{max(numbers, default=0) + 1:06d}.jsonl"
        new = path.with_suffix(".new")
        try:
            line = pack({"snapshot": to_plain(state)})
            # a reader must never meet a segment without its snapshot: it gets its name once that is written
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(line)
            os.replace(new, path)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError:
            self.lost += 1
            self._written = 0
            return
        self._path, self._written, self._torn = path, 0, False
        if older_file >= 0:
            os.close(older_file)
        for _, closed in segments(self._folder):
            if closed != path and closed.suffix == ".jsonl":
                _compress(closed)
        del old


def segments(folder: Path) -> list[tuple[int, Path]]:
    """The segments on disk by number, oldest first; one that is being compressed is named once."""
    found: dict[int, Path] = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        match = _NAME.fullmatch(name)
        # sorted: the plain file comes before its .gz, and stays the one to read until it is deleted
        if match and int(match[1]) not in found:
            found[int(match[1])] = folder / name
    return sorted(found.items())


def read_state(folder: Path) -> State | None:
    """The run as its journal tells it: the newest readable snapshot and what came after; None without a journal."""
    later: list[dict[str, Any]] = []
    for _, path in reversed(segments(folder)):
        lines = list(_lines(path))
        snapshot = next((found for line in lines[:1] if (found := _snapshot(line))), None)
        events = [line for line in lines if "e" in line]
        if snapshot is not None:
            return _fold(snapshot, events + later)
        later = events + later
    return _fold(State(), later) if later else None


def read_events(where: Path) -> Iterator[Event]:
    """Every event of a data folder or of one segment, oldest first; unreadable lines are left out."""
    paths = [path for _, path in segments(where)] if where.is_dir() else [where]
    for path in paths:
        for line in _lines(path):
            event = event_from_plain(line)
            if event is not None:
                yield event


def _fold(state: State, lines: list[dict[str, Any]]) -> State:
    for line in lines:
        event = event_from_plain(line)
        if event is not None:
            state = fold(state, event)
    return state


def _snapshot(line: dict[str, Any]) -> State | None:
    try:
        return from_plain(State, line["snapshot"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in a segment; a torn last line, or one damaged in the middle, is skipped."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        try:
            content = candidate.read_bytes()
            text = gzip.decompress(content) if candidate.suffix == ".gz" else content
        except (OSError, EOFError):
            continue
        for line in text.split(b"\n"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found
        return


def _compress(path: Path) -> None:
    """``path`` becomes ``path.gz``; where that fails, the plain file stays."""
    packed = path.with_name(path.name + ".gz")
    new = packed.with_suffix(".new")
    try:
        new.write_bytes(gzip.compress(path.read_bytes(), 6, mtime=0))
        os.replace(new, packed)
        path.unlink()
    except OSError:
        return

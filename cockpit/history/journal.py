"""A run's events on disk: append-only segments that each open with a snapshot. A recording is this folder.

Written by the engine alone; read by whoever wants to know a run without one. A start folds one segment. Total size is
bounded: older segments lose their samples, then their blocks, then their snapshot, never a change or an epoch.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cockpit.model.crash import Resumed
from cockpit.model.events import Event
from cockpit.model.names import SCHEMA
from cockpit.wire.codec import event_from_plain, event_to_plain, from_plain, to_plain
from cockpit.wire.framing import is_newer, pack

from .fold import fold
from .state import State

SEGMENT_BYTES = 1_000_000
"""Events in a segment before the next one opens; a snapshot comes on top."""
TOTAL_BYTES = 12_000_000
"""What all segments of a run may take on disk: a day of two samples a second would be about 30 MB."""
KEEP_ONE_OF = 10
THINNED = ("Sampled", "GpuSampled", "RanksSeen", "OutputSeen", "BlockMeasured")
TRY_AGAIN_EVERY = 20
"""Events after a failed write until the next attempt: each costs a whole snapshot."""
TAIL_BYTES = 64 * 1024
_NAME = re.compile(r"journal-(\d{6,})(?:-thin|-bare)?\.jsonl(\.gz)?")


class Journal:
    """The writing end. Never raises for a full or vanished disk: the run goes on, ``lost`` counts what is missing.

    ``state`` is what is known so far. Nothing is written before the first event: looking at a run leaves no trace.
    """

    def __init__(
        self, folder: Path, state: State, segment_bytes: int = SEGMENT_BYTES, total_bytes: int = TOTAL_BYTES
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._total_bytes = total_bytes
        self._file = -1
        self._written = 0
        self._missing = 0
        self._first: State | None = state
        self.lost = 0

    def append(self, event: Event, after: State) -> None:
        """Write ``event``; ``after`` is the state with it, which opens the next segment when this one is full."""
        if self._first is not None:
            self._open_segment(self._first)
            self._first = None
        if self._missing or self._file < 0 or not self._write(pack(event_to_plain(event))):
            self._go_on_after_loss(after)
        elif self._written > self._segment_bytes or isinstance(event, Resumed):
            # who looks for the end of the run looks at the last segment, and this one holds an end that was none
            self._open_segment(after)

    def close(self) -> None:
        """Nothing more will come."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _go_on_after_loss(self, state: State) -> None:
        """Events were lost: only a new segment, whose snapshot holds what they did, tells the truth again."""
        if self._missing % TRY_AGAIN_EVERY == 0 and self._missing and self._open_segment(state):
            self._missing = 0
        else:
            self._missing += 1
            self.lost += 1

    def _write(self, line: bytes) -> bool:
        try:
            done = os.write(self._file, line)
        except OSError:
            return False
        self._written += done
        return done == len(line)

    def _open_segment(self, state: State) -> bool:
        self._written = 0
        older = segments(self._folder)
        path = self._folder / f"journal-{max((number for number, _ in older), default=0) + 1:06d}.jsonl"
        new = path.with_suffix(".new")
        try:
            # a reader must never meet a segment without its snapshot: it gets its name once that is written
            _write(new, pack({"schema": SCHEMA, "snapshot": to_plain(state)}))
            os.replace(new, path)
            opened = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            return False
        self.close()
        self._file = opened
        for _, closed in older:
            if closed.suffix == ".jsonl":
                _rewrite(closed, closed.with_name(closed.name + ".gz"), _keep_all)
        _bound(self._folder, self._total_bytes)
        return True


def segments(folder: Path) -> list[tuple[int, Path]]:
    """The segments on disk by number, oldest first; one that is being compressed is named once."""
    found: dict[int, Path] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    # where a crash left a segment twice, the fuller one counts: plain before .gz, whole before thin
    for name in sorted(names, key=lambda name: (name.count("-"), name)):
        match = _NAME.fullmatch(name)
        if match and int(match[1]) not in found:
            found[int(match[1])] = folder / name
    return sorted(found.items())


def read_state(folder: Path) -> State | None:
    """The run as its journal tells it: the newest readable snapshot and what came after.

    None without a journal, or with one that a newer cockpit has written.
    """
    later: list[dict[str, Any]] = []
    for _, path in reversed(segments(folder)):
        lines = list(_lines(path))
        if any(is_newer(line) for line in lines[:1]):
            return None
        snapshot = next((found for line in lines[:1] if (found := _snapshot(line))), None)
        events = [line for line in lines if "e" in line]
        if snapshot is not None:
            return _fold(snapshot, events + later)
        later = events + later
    return _fold(State(), later) if later else None


def has_ended(folder: Path) -> bool:
    """Whether the journal holds the training's end; looks at the end of the last segment only, so it is quick."""
    for _, path in segments(folder)[-1:]:
        try:
            with open(path, "rb") as file:
                opening = file.readline()
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return b'\n{"e":"TrainingEnded"' in b"\n" + file.read() or _says_ended(opening)
        except OSError:
            return False
    return False


def _says_ended(line: bytes) -> bool:
    """Whether a segment's snapshot is of a run that had ended (and something was noted after)."""
    try:
        return json.loads(line)["snapshot"]["phase"] in ("ended", "lost")
    except (ValueError, KeyError, TypeError):
        return False


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


def _bound(folder: Path, total_bytes: int) -> None:
    """Make old segments smaller until all fit: first thin ones, from the oldest, then bare ones."""
    sizes = {path: path.stat().st_size for _, path in segments(folder)[:-1]}
    total = sum(sizes.values())
    for from_, to, keep in (("", "-thin", _keep_some), ("-thin", "-bare", _keep_rare)):
        for path, size in list(sizes.items()):
            if total <= total_bytes:
                return
            if path.name.removesuffix(".jsonl.gz").endswith(from_ or tuple("0123456789")):
                smaller = path.with_name(re.sub(r"(-\d+)(-thin)?", rf"\1{to}", path.name))
                if _rewrite(path, smaller, keep):
                    total -= size
                    del sizes[path]
                    sizes[smaller] = smaller.stat().st_size
                    total += sizes[smaller]


def _keep_all(lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return lines


def _keep_some(lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One of ten samples and output lines: enough to see what the day was like. Blocks go with them."""
    count = 0
    for line in lines:
        count += line.get("e") == "Sampled"
        if line.get("e") not in THINNED or count % KEEP_ONE_OF == 0:
            yield line


def _keep_rare(lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Changes, epochs, starts and ends only."""
    for line in lines:
        if line.get("e") not in (*THINNED, "LoadersSeen"):
            yield {"snapshot": None} if "snapshot" in line else line


def _rewrite(path: Path, packed: Path, keep: Callable[[Iterator[dict[str, Any]]], Iterator[dict[str, Any]]]) -> bool:
    """``path`` becomes ``packed``, compressed; where that fails, it stays as it is."""
    new = packed.with_suffix(".new")
    try:
        _write(new, gzip.compress(b"".join(pack(line) for line in keep(_lines(path))), 6, mtime=0))
        os.replace(new, packed)
        path.unlink()
    except OSError:
        return False
    return True


def _write(path: Path, content: bytes) -> None:
    """For this user's eyes only: a journal holds what the training printed."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)

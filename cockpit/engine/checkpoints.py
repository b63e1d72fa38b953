"""The newest complete checkpoint of a script that resumes by itself, for ``--resume-with "--resume {checkpoint}"``.

Looks only at names, sizes, times and the outer structure of files: nothing of a checkpoint is ever unpickled here. One
that is still being written, or was cut short, is passed over with its reason for the one before.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import struct
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cockpit.model.errors import UsageError

PLACE = "{checkpoint}"
SUFFIXES = (".pt", ".pth", ".ckpt", ".tar", ".safetensors")
"""What is looked for where no pattern was given, among files that were written since the run began."""
DEEPEST, LOOKED_AT_MOST = 4, 20_000
"""Folders below the training's own, and files in all, that are looked through without a pattern."""
IN_VAIN = "a process that began from it ended before its first step"
STILL_S = 1.0
"""Whoever has not grown for so long, and was not touched in that time, is no more being written."""
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
HALF_DONE = (".tmp", ".part", ".partial", ".incomplete", ".new", "~")


@dataclass(frozen=True)
class Checkpoint:
    """A file, or a folder of files. ``path`` as the pattern spells it, ``key`` tells this state of it from another."""

    path: str
    at_s: float
    size: int
    key: str


@dataclass
class Search:
    """Where a run's checkpoints are. ``pattern`` None: files of well-known kinds, written ``since_s``."""

    cwd: Path
    pattern: str | None
    since_s: float
    clock: Callable[[], float]
    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)

    def newest(self, quiet: bool = False, in_vain: Container[str] = ()) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """The newest that is complete, and why newer ones were passed over. ``quiet``: nobody is left who writes.
        ``in_vain``: keys of those that a process began from and made no step.

        While somebody trains it takes two looks, a second apart, to know that one is not being written.
        """
        passed: list[str] = []
        found = sorted(self.all(), key=lambda each: (each.at_s, each.path), reverse=True)
        self._note(found)
        for number, each in enumerate(found, 1):
            reason = None if quiet or self._is_still(each) else "it is being written"
            reason = reason or (IN_VAIN if each.key in in_vain else why_incomplete(self.cwd / each.path))
            # no more than the newest was being written when its writer was killed
            reason = reason or (self._why_lacking(each, found[1:]) if number == 1 else None)
            if reason is None:
                return each, tuple(passed)
            passed.append(f"{each.path} was not used: {reason}")
        return None, tuple(passed)

    def all(self) -> list[Checkpoint]:
        """Whatever bears a fitting name, complete or not."""
        names = self._by_pattern() if self.pattern is not None else self._by_kind()
        return [each for name in names if (each := self._look(name)) is not None]

    def _by_pattern(self) -> Iterator[str]:
        pattern = os.path.expanduser(str(self.pattern))
        yield from glob.iglob(pattern, root_dir=self.cwd, recursive=True)

    def _by_kind(self) -> Iterator[str]:
        looked = 0
        for folder, below, names in os.walk(self.cwd):
            depth = len(Path(folder).relative_to(self.cwd).parts)
            below[:] = [] if depth >= DEEPEST else sorted(name for name in below if not name.startswith((".", "__")))
            for name in names:
                looked += 1
                if name.endswith(SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), self.cwd)
            if looked > LOOKED_AT_MOST:
                return

    def _look(self, name: str) -> Checkpoint | None:
        if name.rstrip("/").endswith(HALF_DONE):
            return None
        path = self.cwd / name
        try:
            stats = [os.stat(file) for file in _files(path)]
        except OSError:
            return None
        at_ns, size = max((stat.st_mtime_ns for stat in stats), default=0), sum(stat.st_size for stat in stats)
        if not stats or (self.pattern is None and at_ns / 1e9 < self.since_s):
            return None
        # by another name (latest.pt -> epoch_3.pt) it is still the same
        return Checkpoint(name, at_ns / 1e9, size, f"{os.path.realpath(path)} {size} {at_ns} {len(stats)}")

    def _why_lacking(self, each: Checkpoint, older: Sequence[Checkpoint]) -> str | None:
        """A folder whose writer was killed between two of its files has fewer kinds of them than the one before."""
        folder, like = self.cwd / each.path, _kind(each.path)
        before = next((one for one in older if _kind(one.path) == like and (self.cwd / one.path).is_dir()), None)
        if before is None or not folder.is_dir():
            return None
        has, had = _kinds(folder), _kinds(self.cwd / before.path)
        lacking = [names[-1] for kind, names in had.items() if len(has.get(kind, ())) < len(names)]
        return f"it lacks {min(lacking)}, which {before.path} has" if lacking else None

    def _note(self, found: Sequence[Checkpoint]) -> None:
        now_s = self.clock()
        before = self._seen
        self._seen = {
            each.path: old if (old := before.get(each.path)) and old[0] == each.key else (each.key, now_s)
            for each in found
        }

    def _is_still(self, each: Checkpoint) -> bool:
        now_s = self.clock()
        untouched = not 0.0 <= now_s - each.at_s < STILL_S
        return untouched and now_s - self._seen[each.path][1] >= STILL_S


def _files(path: Path) -> list[str]:
    """The file itself, or every file in the folder."""
    if not path.is_dir():
        return [str(path)]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


def _kinds(folder: Path) -> dict[str, list[str]]:
    """Names in a folder by what they are but for the numbers in them, which count steps, ranks or parts."""
    found: dict[str, list[str]] = {}
    for file in sorted(_files(folder)):
        name = os.path.relpath(file, folder)
        found.setdefault(_kind(name), []).append(name)
    return found


def _kind(name: str) -> str:
    return re.sub(r"[0-9]+", "#", name)


def why_incomplete(path: Path) -> str | None:
    """What shows that it was cut short; None where nothing does. A folder is as good as its worst file."""
    try:
        files = _files(path)
        reasons = [reason for file in files if (reason := _why_cut(file, alone=len(files) == 1)) is not None]
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if not files:
        return "it is empty"
    return reasons[0] if reasons else None


def _why_cut(file: str, alone: bool) -> str | None:
    size = os.stat(file).st_size
    if size == 0:
        return "it is empty" if alone or file.endswith(SUFFIXES) else None
    with open(file, "rb") as opened:
        head = opened.read(8)
    if head.startswith(b"PK\x03\x04"):
        return _why_no_archive(file, size)
    if file.endswith(".safetensors"):
        return _why_no_tensors(file, size, head)
    return None


def _why_no_archive(file: str, size: int) -> str | None:
    """The list of its parts stands at its end and is written last; each part must lie before it."""
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            end = archive.start_dir
            whole = all(part.header_offset + part.compress_size < end for part in parts) and end < size
            # torch's own kind: without its pickle there is nothing to load
            pickles = [part for part in parts if part.filename.endswith("data.pkl")]
            torchs = any(part.filename.endswith(("/version", "/.data/serialization_id")) for part in parts)
            return None if parts and whole and (pickles or not torchs) else "it was cut short"
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
        return "it was cut short"


def _why_no_tensors(file: str, size: int, head: bytes) -> str | None:
    """Its header says where the last tensor ends: that is where the file does."""
    cut = "it was cut short"
    if len(head) < 8:
        return cut
    (length,) = struct.unpack("<Q", head)
    if 8 + length > size:
        return cut
    try:
        with open(file, "rb") as opened:
            opened.seek(8)
            header = json.loads(opened.read(length))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        return None if size == 8 + length + max(ends, default=0) else cut
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return cut


# ---- the words that are put after the script's own ----


def check_resume(text: str, argv: Sequence[str]) -> None:
    """Raises UsageError for ``--resume-with`` that could not work with this command."""
    words = resume_words(text, PLACE)
    if not words:
        raise UsageError('--resume-with needs what to put after the script\'s own words, as in "--resume {checkpoint}"')
    wrong = next((word for word in words if "{ckpt}" in word or "{path}" in word or "{file}" in word), None)
    if wrong is not None and PLACE not in text:
        raise UsageError(f"--resume-with knows {PLACE}, not {wrong}")
    shell = os.path.basename(argv[0]) if argv else ""
    if shell in SHELLS and any(word.startswith("-") and "c" in word for word in argv[1:2]):
        raise UsageError(f"--resume-with cannot reach a script behind {shell} -c: name the script itself")


def resume_words(text: str, path: str) -> list[str]:
    """``--resume-with`` cut into words as a shell would, with the checkpoint in its place. Raises UsageError."""
    try:
        return [word.replace(PLACE, path) for word in shlex.split(text)]
    except ValueError as error:
        raise UsageError(f"--resume-with cannot be {text!r}: {error}") from error


def search_of(facts: Mapping[str, object], clock: Callable[[], float]) -> Search | None:
    """Where the checkpoints of a run are, by its ``run.json``; None where it was not told how it resumes, or finds
    them by itself."""
    text, pattern = facts.get("resume_with"), facts.get("checkpoints")
    if not isinstance(text, str) or not (PLACE in text or pattern):
        return None
    began = facts.get("started_s")
    since_s = float(began) if isinstance(began, (int, float)) else 0.0
    return Search(Path(str(facts.get("cwd", "/"))), str(pattern) if pattern else None, since_s, clock)

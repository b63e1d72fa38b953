"""``cockpit logs``: the training's own output, byte for byte, from the first byte that was kept.

Reads the file, never the engine, so it works while the run lives and long after.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cockpit.model.errors import CockpitError

from .runs import STATE_DIR, find, has_ended, name_in
from .verbs import Verb
from .words import Option, Words

OPTIONS: tuple[Option, ...] = (
    Option("--follow", "go on until the run ends", short="-f"),
    STATE_DIR,
)

CHUNK = 256 * 1024
LOOK_S = 0.1


def call(verb: Verb, words: Words) -> int:
    """Copy the output to stdout; 0."""
    run = find(name_in(verb, words), words)
    path = run.output
    follow = words.has("--follow")
    try:
        for data in pieces(path, ended=(lambda: has_ended(run)) if follow else (lambda: True)):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except FileNotFoundError as error:
        raise CockpitError(f"{run.name} has no output file ({path})") from error
    return 0


def pieces(path: Path, ended: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
    """The file's bytes as they come, until ``ended()`` and all is read; begins anew where the file was truncated."""
    with path.open("rb", buffering=0) as file:
        at = first_kept(file.fileno())
        while True:
            # asked before reading: what was written before the end is then surely read
            over = ended()
            size = os.fstat(file.fileno()).st_size
            if size < at:
                at = first_kept(file.fileno())
            file.seek(at)
            while data := file.read(CHUNK):
                at += len(data)
                yield data
            if over:
                return
            pause(LOOK_S)


def first_kept(descriptor: int) -> int:
    """Offset of the first byte that is still there: the oldest blocks of a long log are released as holes."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0  # an empty file, or a file system that does not tell

"""Keeps the output file of a talkative training from filling its disk, by giving its oldest blocks back.

Called by the engine about once a second. The file keeps its length and its newest bytes, and the training, which
appends to it, notices nothing; readers begin at the first byte that is left (``SEEK_DATA``).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

KEEP_BYTES = 192 * 2**20
SLACK_BYTES = 64 * 2**20
BLOCK_BYTES = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
LOW_BYTES = 32 * 2**20
"""With less than this left on its disk, the output takes no more than half of what is left."""
KEEP_LEAST_BYTES = 64 * 1024


def room_for(free_bytes: int | None) -> tuple[int, int]:
    """(bytes of output to keep, bytes of slack) where so many are left on its disk; None: not known."""
    if free_bytes is None or free_bytes >= LOW_BYTES:
        return KEEP_BYTES, SLACK_BYTES
    keep = max(KEEP_LEAST_BYTES, free_bytes // 2)
    return keep, keep // 2


def release_oldest(path: Path, keep_bytes: int = KEEP_BYTES, slack_bytes: int = SLACK_BYTES) -> int:
    """Give back what is older than the newest ``keep_bytes``; the bytes given back.

    0 where the file takes less than that and ``slack_bytes``. Raises OSError where the file system cannot do it.
    """
    with open(path, "r+b", buffering=0) as file:
        found = os.fstat(file.fileno())
        taken = found.st_blocks * 512
        if taken <= keep_bytes + slack_bytes:
            return 0
        end = (found.st_size - keep_bytes) // BLOCK_BYTES * BLOCK_BYTES
        if end <= 0:
            return 0
        _punch(file.fileno(), end)
        return taken - os.fstat(file.fileno()).st_blocks * 512


def _punch(descriptor: int, end: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    if call(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, end) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

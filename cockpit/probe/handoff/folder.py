"""Hand-offs on the disk: RUN/handoff/1, 2, … each with ``state.pt`` and ``manifest.json``, whole or not there.

Written into ``N.new``, synced, loaded back, compared, and renamed in one step; the last two are kept. A reader takes
the newest whole one that belongs to this run, and says why it passed over others. It must never leave a run without
the hand-off that it had, and never touch what it did not write.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import shutil
import sys
import time
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

from ...model.sizes import size_words
from .. import lives
from ..guard import attempt
from .contents import Contents, contents_of

SCHEMA = 1
STATE, MANIFEST, DAMAGED = "state.pt", "manifest.json", "damaged"
"""The last is an empty file: a process that was to go on from there has found that it cannot."""
NEW, GONE = ".new", ".gone"
"""After the number of one that is being written, and of one that is being removed."""
KEPT = 2
NONE_LEFT = 1 << 20
PIECE = 1 << 16
MARGIN = 16 << 20
"""So much stays free beside a hand-off: the script's own checkpoints need room, too."""


class Refused(Exception):
    """Why a hand-off cannot be written, or why one is not read: a sentence without its end."""


class Damaged(Refused):
    """What was written is not there any more."""


class Owner(NamedTuple):
    """Whose hand-offs these are: any other's are foreign."""

    run: str
    script: str
    things: tuple[str, ...]


def owner_of(run: str, things: Iterable[str]) -> Owner:
    """This script's, in the run whose data folder is ``run``."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0]
    return Owner(os.path.basename(os.path.realpath(run)), os.path.realpath(script), tuple(sorted(things)))


class Found(NamedTuple):
    """A hand-off that was read and is whole."""

    number: int
    path: str
    manifest: dict[str, Any]
    state: Any


def free_bytes(folder: str) -> int:
    """What this user may still write there."""
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize


def made(folder: str) -> None:
    """The folder is there; a run's own folder that somebody has removed does not come back."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


# ---- writing ----


def write(
    torch: Any, folder: str, owner: Owner, facts: dict[str, Any], state: Any, contents: Contents,
    free: Callable[[str], int] = free_bytes,
) -> tuple[str, int]:  # fmt: skip
    """(path, bytes) of a new whole hand-off. Raises Refused; what was there before stays."""
    try:
        made(folder)
        _sweep(folder)
        need, room = contents.nbytes + contents.nbytes // 50 + MARGIN, free(folder)
        if need > room:
            raise Refused(
                "it needs %s on the disk of %s, and %s are free" % (size_words(need), folder, size_words(max(0, room)))
            )
        number = max(numbers(folder), default=0) + 1
        new = os.path.join(folder, "%d%s" % (number, NEW))
        os.mkdir(new, 0o700)
    except OSError as error:
        raise Refused("%s cannot be written: %s" % (folder, error.strerror or error)) from None
    _, failed = attempt(_fill, torch, new, owner, facts, state, contents)
    if failed is not None:
        full = getattr(failed, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or free_bytes(folder) < NONE_LEFT
        let_go(failed)
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(failed, Refused):
            raise Refused(str(failed))
        if full:
            raise Refused("the disk of %s is full" % folder)
        raise Refused("writing it failed: %s" % first_line(failed))
    path = os.path.join(folder, str(number))
    try:
        os.rename(new, path)
        sync_folder(folder)
    except OSError as error:
        raise Refused("%s cannot be written: %s" % (path, error.strerror or error)) from None
    _prune(folder)
    return path, _size(os.path.join(path, STATE))


def _fill(torch: Any, new: str, owner: Owner, facts: dict[str, Any], state: Any, contents: Contents) -> None:
    path = os.path.join(new, STATE)
    torch.save(state, path)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    back = _load(torch, path, mapped=True)
    if contents_of(torch, back).tensors != contents.tensors:
        raise Refused("what was read back from the disk is not what was written")
    del back
    manifest = {
        "schema": SCHEMA, **owner._asdict(), **facts, "torch": str(torch.__version__), "created_s": time.time(),
        "bytes": _size(path), "pickle_crc": _pickle_crc(path), "tensors": contents.tensors,
    }  # fmt: skip
    with open(os.path.join(new, MANIFEST), "w", encoding="utf-8") as file:
        json.dump({**manifest, "check": _check(manifest)}, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(new)


def _load(torch: Any, path: str, mapped: bool = False) -> Any:
    """Everything in the file, unpickled; ``mapped``: not read into memory, and nothing goes to a device."""
    known = inspect.signature(torch.load).parameters
    more: dict[str, Any] = {"weights_only": False} if "weights_only" in known else {}
    if mapped:
        more["map_location"] = "cpu"
        if "mmap" in known:
            more["mmap"] = True
    return torch.load(path, **more)


def _pickle_crc(path: str) -> int:
    """Checksum of the part of the file that is no tensor."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
        found = 0
        with archive.open(name) as file:
            while piece := file.read(PIECE):  # the script's numpy arrays are in there: never all of it in memory
                found = zlib.crc32(piece, found)
        return found


def _check(manifest: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def _size(path: str) -> int:
    return os.stat(path).st_size


def sync_folder(folder: str) -> None:
    """The names in it reach the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some file systems cannot sync a folder
        pass
    finally:
        os.close(handle)


def numbers(folder: str) -> list[int]:
    """Of the hand-offs that lie there under their final name, newest first. Raises OSError where nobody can tell."""
    try:
        return sorted((int(name) for name in os.listdir(folder) if name.isdigit()), reverse=True)
    except FileNotFoundError:
        return []


def _sweep(folder: str) -> None:
    """What a write that was killed has left."""
    for name in filter(is_left_over, os.listdir(folder)):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def is_left_over(name: str) -> bool:
    """Whether it is the name of one that somebody began to write or to remove, and was killed over."""
    number, dot, rest = name.partition(".")
    return number.isdigit() and dot + rest in (NEW, GONE)


def _prune(folder: str) -> None:
    """Renamed before it is removed: what is half gone does not look like a damaged hand-off."""
    for number in numbers(folder)[KEPT:]:
        path = os.path.join(folder, str(number))
        try:
            os.rename(path, path + GONE)
        except OSError:
            continue
        shutil.rmtree(path + GONE, ignore_errors=True)


# ---- reading ----


def newest(torch: Any, folder: str, owner: Owner) -> tuple[Found | None, list[str]]:
    """The newest whole hand-off of this owner, and why each newer one was passed over."""
    passed: list[str] = []
    for number in numbers(folder):
        found, error = attempt(read, torch, os.path.join(folder, str(number)), owner)
        if found is not None:
            return found, passed
        reason = str(error) if isinstance(error, Refused) else "it is damaged: %s" % first_line(error)
        if isinstance(error, Damaged):
            lives.mark(os.path.join(folder, str(number)), DAMAGED)
        let_go(error)
        passed.append("hand-off %d was not used: %s" % (number, reason))
    return None, passed


def read(torch: Any, path: str, owner: Owner) -> Found:
    """The hand-off at ``path``, compared with its own manifest. Raises Refused, or what torch raises."""
    manifest = manifest_of(path)
    for name, theirs, ours in (
        ("run", manifest.get("run"), owner.run),
        ("script", manifest.get("script"), owner.script),
    ):
        if theirs != ours:
            raise Refused("it is of another %s (%s)" % (name, theirs))
    things = manifest.get("things")
    if things != list(owner.things):
        raise Refused(
            "it holds %s, and the script now asks for %s"
            % (", ".join(things or ()) or "nothing", ", ".join(owner.things))
        )
    if not is_whole(path, manifest):
        raise Damaged("it is damaged: %s is not what was written" % STATE)
    state = _load(torch, os.path.join(path, STATE))
    if contents_of(torch, state).tensors != manifest["tensors"]:
        raise Damaged("it is damaged: its tensors are not what was written")
    return Found(int(os.path.basename(path)), path, manifest, state)


def is_whole(path: str, manifest: dict[str, Any]) -> bool:
    """Whether its state is as long as it was, and its part without tensors what it was."""
    state_path = os.path.join(path, STATE)
    return bool(_size(state_path) == manifest["bytes"] and _pickle_crc(state_path) == manifest["pickle_crc"])


def manifest_of(path: str) -> dict[str, Any]:
    """The manifest, whole and of this schema. Raises Refused."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
    except (OSError, ValueError):
        raise Refused("it is damaged: its %s cannot be read" % MANIFEST) from None
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        raise Refused("it was written by another version of cockpit (schema %s, this one reads %d)" % (schema, SCHEMA))
    if manifest.pop("check", None) != _check(manifest):
        raise Refused("it is damaged: its %s is not what was written" % MANIFEST)
    return dict(manifest)


def let_go(error: BaseException | None) -> None:
    """What its frames hold, by which a whole state stays in memory, and a removed file keeps its room on the disk: they
    hold each other, and are collected when it pleases."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            with contextlib.suppress(RuntimeError):  # it runs
                trace.tb_frame.clear()
            trace = trace.tb_next
        error.__traceback__ = None
        error = error.__context__


def first_line(error: BaseException | None) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, lines[0] if lines else "") if lines else type(error).__name__

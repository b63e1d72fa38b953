"""What a dataset holds that forked workers would share with the training: a position in a file, a connection.

Asked by a loader's control before workers are started that the script has not asked for. Two processes that read by
one position get each other's rows, and nothing fails. It must run no code of the script, and not take for harmful
what is only open: logs that are written, files that are mapped, what is opened for each item.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from mmap import mmap
from types import GeneratorType
from typing import Any, Callable, NamedTuple

from .reach import GLANCE, GLOBAL, Limits, Reached, attributes_of, methods_of, names_in, own_attributes
from .sparing import Sparing
from .whose import NAME, NOT_SCRIPTS, module_of

THOROUGH = Limits(20_000, 20_000, 500, 300_000)
"""Before workers are started; for a row on the screen a glance must do."""
SHARE = 1000
"""Glances take this part of the time at most: there are scripts that make an iterator for each step."""
LIBRARIES = frozenset([
    "h5py", "tables", "lmdb", "sqlite3", "netCDF4", "cv2", "decord", "av", "soundfile", "rasterio", "osgeo",
    "openslide", "pysam", "psycopg2", "psycopg_c", "zmq", "grpc", "rocksdb", "plyvel", "MySQLdb", "torchcodec",
])  # fmt: skip
HANDLES = (
    "File", "Group", "Dataset", "Array", "Environment", "Transaction", "Cursor", "Connection", "connection",
    "Reader", "Container", "Capture", "Slide", "Socket", "Channel", "DB", "Decoder",
)  # fmt: skip
"""Their types that are handles, by a part of the name: they read in C, where nobody sees by what position."""
ITERATORS = frozenset(map(id, map(type, (iter([]), iter(()), iter({}), map(str, ()), zip(), enumerate(())))))
"""By identity: a metaclass may make a class that is not equal to itself."""
IS_OPEN: dict[str, Callable[[Any], bool]] = {"h5py": bool}
"""How to ask some of them; of others it is not known."""
LOCKING = frozenset(["multiprocessing.synchronize", "multiprocessing.sharedctypes", "multiprocessing.queues"])
SHARED = {
    "file": "whose position workers would share",
    "pipe": "from which workers would take each other's data",
    "handle": "which workers would share",
}
_TRANSPARENT = (tuple, list, dict, set, frozenset, type)
TEXTS = 1_000
"""So many attributes that may name files are remembered."""
PARTS = 4
UNLESS = "workers would share it unless they open their own"


class Held(NamedTuple):
    """``refused``: workers would do harm, and why. ``note``: what is to be known before they are started."""

    refused: str | None = None
    note: str | None = None


class HeldWatch:
    """For all loaders of a process. What it is given has the fields of a loader, and forks its workers."""

    def __init__(self, torch: Any, clock: Callable[[], int]) -> None:
        self._tensors = frozenset((id(torch.Tensor), id(torch.nn.Parameter)))
        self.clock = clock
        self._spares = Sparing(SHARE)

    def glance(self, given: Any) -> Held | None:
        """For a row, quickly; None where there was a glance just now."""
        began_ns = self.clock()
        if not self._spares.is_due(began_ns):
            return None
        found = self.look(given, GLANCE)
        self._spares.took(began_ns, self.clock())
        return found

    def look(self, given: Any, limits: Limits = THOROUGH) -> Held:
        """What is found first of what would be harmed; else what is to be known."""
        notes: list[str] = []
        init = getattr(given.worker_init_fn, "__code__", None)
        prepared = frozenset(names_in(init))
        for whose, root in (("the dataset", given.dataset), ("collate_fn", given.collate_fn)):
            found = Found(root, limits, self._tensors)
            for certain, words in found.told(whose, prepared):
                if certain:
                    return Held(words)
                notes.append(words)
        return Held(None, "; ".join(notes[:2]) or None)


class Found:
    """What one root reaches, sorted by what it would mean for workers."""

    def __init__(self, root: Any, limits: Limits, tensors: frozenset[int]) -> None:
        self._tensors = tensors
        self._files: list[tuple[str, int, type]] = []
        self._numbers: list[tuple[str, int, type]] = []
        self._handles: list[tuple[str, str, type]] = []
        self._iterators: list[str] = []
        self._threads: list[str] = []
        self._locks: list[str] = []
        self._on_device: list[str] = []
        self._opaque: list[str] = []
        self._texts: list[str] = []
        self._maps = False
        for thing, path, owner in Reached(root, limits):
            self._sort(thing, type(thing), path, owner)

    def _sort(self, thing: Any, kind: type, path: str, owner: type) -> None:
        own = not path.startswith(GLOBAL)  # else most likely somebody else's
        if issubclass(kind, FileIO):
            with suppress(ValueError):  # closed by another thread just now
                if not FileIO.closed.__get__(thing):
                    self._files.append((path, FileIO.fileno(thing), owner))
        elif issubclass(kind, mmap):
            self._maps = True
        elif id(kind) in self._tensors:
            if thing.device.type not in ("cpu", "meta"):
                self._on_device.append(path)
        elif id(kind) in ITERATORS or (kind is GeneratorType and thing.gi_frame is not None):
            self._iterators.extend([path] if own else [])
        elif issubclass(kind, threading.Thread):
            self._threads.extend([path] if own and threading.Thread.is_alive(thing) else [])
        elif module_of(kind) in LOCKING:
            self._locks.extend([path] if own else [])
        else:
            self._sort_by_name(thing, kind, path, owner, own)

    def _sort_by_name(self, thing: Any, kind: type, path: str, owner: type, own: bool) -> None:
        package, name = module_of(kind).split(".")[0], NAME(kind)
        sockets = sys.modules.get("_socket")
        if sockets is not None and issubclass(kind, sockets.socket):
            if sockets.socket.fileno(thing) >= 0:
                self._handles.append((path, "an open connection", owner))
        elif package in LIBRARIES and any(part in name for part in HANDLES):
            if IS_OPEN.get(package, _unknown)(thing):
                self._handles.append((path, "an open %s.%s" % (package, name), owner))
        elif package not in NOT_SCRIPTS:
            if own and own_attributes(thing) is None and not issubclass(kind, _TRANSPARENT):
                self._opaque.append("%s.%s" % (package, name))
            for attribute, value in attributes_of(thing):
                if type(value) is int and value > 2 and type(attribute) is str and "fd" in attribute.lower():
                    self._numbers.append(("%s.%s" % (path, attribute) if path else attribute, value, owner))
                elif own and type(value) is str and 2 < len(value) < 4096 and len(self._texts) < TEXTS:
                    self._texts.append(value)

    # ---- what it means ----

    def told(self, whose: str, prepared: frozenset[str]) -> Iterator[tuple[bool, str]]:
        """Sentences, and whether each is certain to do harm. ``prepared``: names that worker_init_fn mentions."""
        known = set()
        for path, number, owner in self._files:
            known.add(number)
            file = described(number)
            mapped = file is not None and self._maps and file.is_mapped()
            if file is not None and (file.position or not mapped):
                words = "an open %s (%s: %s)" % (file.kind, shortened(path), file.name)
                unsure = mapped or file.at_end_of_own or _is_prepared(path, owner, prepared)
                yield self._of_handle(whose, words, SHARED[file.kind], unsure)
        for path, number, owner in self._numbers:
            file = described(number)
            if file is not None and file.position and number not in known:
                known.add(number)
                words = "an open file (%s: %s)" % (shortened(path), file.name)
                yield self._of_handle(whose, words, SHARED["file"], _is_prepared(path, owner, prepared))
        for path, kind, owner in self._handles:
            words = "%s (%s)" % (kind, shortened(path))
            # a connection of the whole script's may serve what is done before the training, or after it
            unsure = path.startswith(GLOBAL) or _is_prepared(path, owner, prepared)
            yield self._of_handle(whose, words, SHARED["handle"], unsure)
        for path in self._iterators:
            words = "%s goes on with an iterator (%s), of which each worker would have its own"
            yield True, words % (whose, shortened(path))
        if self._opaque:
            yield from self._others(whose, known)
        for path in self._threads[:1]:
            yield False, "%s has a thread (%s), which workers would not have" % (whose, path)
        for path in self._locks[:1]:
            words = "%s holds a lock of multiprocessing (%s): a worker that is killed with it keeps it"
            yield False, words % (whose, path)
        for path in self._on_device[:1]:
            yield False, "%s holds tensors on the device (%s), which forked workers cannot use" % (whose, path)

    @staticmethod
    def _of_handle(whose: str, words: str, shared: str, prepared: bool) -> tuple[bool, str]:
        if prepared:
            return False, "%s holds %s: %s" % (whose, words, UNLESS)
        return True, "%s holds %s, %s" % (whose, words, shared)

    def _others(self, whose: str, known: set[int]) -> Iterator[tuple[bool, str]]:
        """Files that the dataset names and that are read by position here, where there is somebody who may do so."""
        for file in map(described, sorted(_open_numbers() - known)):
            if file is not None and file.kind == "file" and file.position and any(map(file.is_named_by, self._texts)):
                words = "%s is open and read here: if %s reads it (%s), workers would share its position"
                yield False, words % (file.name, whose, self._opaque[0])
                return


def _is_prepared(path: str, owner: type, prepared: frozenset[str]) -> bool:
    """Whether whoever wrote the script has thought of other processes, which then may open their own."""
    if path.split(".")[-1].split("[")[0] in prepared:
        return True
    return any("getpid" in set(names_in(method.__code__)) for method in methods_of(owner))


def shortened(path: str) -> str:
    """Of a name that nobody would read to its end: how it begins and ends."""
    parts = path.split(".")
    return path if len(parts) <= PARTS else ".".join((*parts[:2], "…", *parts[-2:]))


def _unknown(handle: Any) -> bool:
    return True


class Descriptor(NamedTuple):
    """An open file of this process that is read: ``position`` is where reading it goes on, 0 where it has none.

    ``at_end_of_own``: it may be written too, and stands where it ends: a log, a lock, a cache.
    """

    kind: str
    path: str
    position: int
    at_end_of_own: bool = False

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def is_named_by(self, text: str) -> bool:
        """Whether ``text`` is its name, or that of a folder it is in."""
        if self.path == text or self.path.endswith("/" + text):
            return True
        return text[0] == "/" and text.count("/") > 1 and self.path.startswith(text.rstrip("/") + "/")

    def is_mapped(self) -> bool:
        """Whether it has been mapped into memory, and may be open for that alone."""
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
                return any(line.rstrip("\n").endswith(" " + self.path) for line in maps)
        except OSError:
            return False


def described(number: int) -> Descriptor | None:
    """None where it is not open, only written (a log), or a terminal's or a device's."""
    try:
        facts, flags = os.fstat(number), fcntl.fcntl(number, fcntl.F_GETFL)
        path = os.readlink("/proc/self/fd/%d" % number)
    except OSError:
        return None
    if number <= 2 or flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_APPEND:
        return None
    mode = facts.st_mode
    if stat.S_ISREG(mode):
        position = os.lseek(number, 0, os.SEEK_CUR)
        return Descriptor("file", path, position, flags & os.O_ACCMODE == os.O_RDWR and position == facts.st_size)
    return Descriptor("pipe", path, 0) if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def _open_numbers() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/fd")}
    except OSError:
        return set()

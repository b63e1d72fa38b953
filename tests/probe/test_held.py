"""What a dataset holds that workers would share with the training: found wherever it stands, only where it harms."""

from __future__ import annotations

import functools
import logging
import mmap
import multiprocessing
import os
import socket
import sqlite3
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, get_worker_info, random_split

from cockpit.probe.groups import Refused
from cockpit.probe.held import GLANCE, HeldWatch
from tests.probe.swap_harness import Harness

WATCH = HeldWatch(torch, time.perf_counter_ns)
HOME = Path(tempfile.mkdtemp())
DATA = HOME / "data.bin"
DATA.write_bytes(bytes(range(256)) * 64)


class Rows(Dataset):
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return index


class Slotted(Rows):
    __slots__ = ("handle",)


class OfClass(Rows):
    shared = DATA.open("rb")


class OfModule(Rows):
    def __getitem__(self, index: int) -> Any:
        return OPENED.read(index)


class Remembered(Rows):
    def __getitem__(self, index: int) -> Any:
        return opened(DATA).read(index)


class Careful(Rows):
    def __getitem__(self, index: int) -> Any:
        if os.getpid() != self.pid:
            self.file, self.pid = DATA.open("rb"), os.getpid()
        return self.file.read(1)


class Asks:
    """Its attributes are code of the script, and so is whatever Python would ask of it."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)

    __len__ = __iter__ = __bool__ = __eq__ = handle = property(lambda self: self.no)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


OPENED = DATA.open("rb")
opened = functools.lru_cache(lambda path: path.open("rb"))


def lines() -> Iterator[bytes]:
    with DATA.open("rb") as file:
        yield from iter(lambda: file.read(8), b"")


def begun() -> Iterator[bytes]:
    rows = lines()
    next(rows)
    return rows


def archive(kind: str) -> Any:
    path = HOME / kind
    if kind == "tar":
        with tarfile.open(path, "w") as tar:
            tar.add(DATA, "x")
        return tarfile.open(path)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.write(DATA, "x")
        return zipfile.ZipFile(path)
    numpy.savez(HOME / "all.npz", x=numpy.zeros(3))
    return numpy.load(HOME / "all.npz")


def in_c(package: str, name: str) -> Any:
    return type(name, (), {"__module__": package, "__slots__": ()})()


def read_by_number() -> int:
    number = os.open(DATA, os.O_RDONLY)
    os.read(number, 8)
    return number


def captured() -> Any:
    file = DATA.open("rb")
    return lambda index: file.read(index)


def local() -> Any:
    slotted = Slotted()
    slotted.handle = DATA.open("rb")
    return slotted


HARMFUL = {
    "file: data.bin": lambda: Rows(file=DATA.open("rb")),
    "text: data.bin": lambda: Rows(text=DATA.open(encoding="latin-1")),
    "dataset.file: data.bin": lambda: Subset(Rows(file=DATA.open("rb")), [1]),
    "dataset.dataset.file: data.bin": lambda: random_split(Subset(Rows(file=DATA.open("rb")), range(4)), [3, 1])[0],
    "datasets[1].file: data.bin": lambda: ConcatDataset([Rows(), Rows(file=DATA.open("rb"))]),
    "files[500]: data.bin": lambda: Rows(files=[None] * 500 + [DATA.open("rb")]),
    "by_name['a']: data.bin": lambda: Rows(by_name={"a": DATA.open("rb")}),
    "samples.file": lambda: Rows(samples=[("name", at) for at in range(50_000)], reader=Rows(file=DATA.open("rb"))),
    "handle: data.bin": local,
    "OfClass.shared: data.bin": OfClass,
    "global OPENED: data.bin": OfModule,
    "global opened: data.bin": lambda: opened(DATA) and Remembered(),
    "transform[0]: data.bin": lambda: Rows(transform=functools.partial(os.fstat, DATA.open("rb"))),
    "file: data.bin ": lambda: Rows(transform=captured()),
    "rows: data.bin": lambda: Rows(rows=begun()),
    "fd: data.bin": lambda: Rows(fd=read_by_number()),
    "tar.fileobj: tar": lambda: Rows(tar=archive("tar")),
    "zip.fp: zip": lambda: Rows(zip=archive("zip")),
    "npz.fid: all.npz": lambda: Rows(npz=archive("npz")),
    "an open sqlite3.Connection (base)": lambda: Rows(base=sqlite3.connect(HOME / "base")),
    "an open h5py.File (h5)": lambda: Rows(h5=in_c("h5py._hl.files", "File")),
    "an open lmdb.Environment (base)": lambda: Rows(base=in_c("lmdb.cpython", "Environment")),
    "an open connection (line)": lambda: Rows(line=PAIR[0]),
    "an iterator (source)": lambda: Rows(source=iter([1, 2])),
}
PAIR = socket.socketpair()

HARMLESS = {
    "nothing": Rows,
    "closed": lambda: closed(DATA),
    "a log": lambda: Rows(log=(HOME / "log").open("a"), more=(HOME / "log2").open("w")),
    "where a logger writes": lambda: Rows(log=logger()),
    "mapped": lambda: mapped(),
    "a memmap": lambda: Rows(rows=numpy.memmap(DATA)),
    "read where it is told to": lambda: Rows(fd=os.open(DATA, os.O_RDONLY)),
    "in memory": lambda: Rows(module=ModuleType("x"), file=__import__("io").BytesIO(b"x")),
    "code of the script": lambda: Rows(asks=Asks(), tensor=torch.zeros(2), many=[Asks()]),
}


def closed(path: Path) -> Rows:
    with path.open("rb") as file:
        return Rows(file=file)


def logger() -> logging.Logger:
    found = logging.Logger("own")
    found.addHandler(logging.FileHandler(HOME / "more", mode="w+"))
    return found


def mapped() -> Rows:
    file = DATA.open("rb")
    return Rows(file=file, rows=mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@pytest.mark.parametrize("where", sorted(set(HARMFUL) - {"samples.file"}))
def test_it_is_found_wherever_it_stands(where: str) -> None:
    found = WATCH.look(DataLoader(HARMFUL[where]()))
    assert found.refused is not None and where.strip() in found.refused, found


def test_a_long_list_hides_nothing_that_stands_behind_it() -> None:
    dataset = HARMFUL["samples.file"]()
    for limits in (GLANCE, None):
        found = WATCH.look(DataLoader(dataset), limits) if limits else WATCH.look(DataLoader(dataset))
        assert "(reader.file: data.bin)" in str(found.refused)


@pytest.mark.parametrize("what", HARMLESS)
def test_what_is_only_open_is_not_refused(what: str) -> None:
    assert WATCH.look(DataLoader(HARMLESS[what]())) == (None, None)


def test_a_dataset_that_knows_of_other_processes_is_warned_of() -> None:
    note = "the dataset holds an open file (file: data.bin): workers would share it unless they open their own"
    assert WATCH.look(DataLoader(Careful(file=DATA.open("rb"), pid=0))) == (None, note)

    def init(worker: int) -> None:
        get_worker_info().dataset.file = DATA.open("rb")

    assert WATCH.look(DataLoader(Rows(file=DATA.open("rb")), worker_init_fn=init)) == (None, note)


def test_a_thread_of_the_dataset_is_told_of() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    found = WATCH.look(DataLoader(Rows(reader=thread)))
    over.set()
    assert found == (None, "the dataset has a thread (reader), which workers would not have")


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "Condition", "Event", "Queue", "Value"])
def test_a_lock_that_outlives_its_holder_is_told_of(kind: str) -> None:
    lock = multiprocessing.Value("i", 0) if kind == "Value" else getattr(multiprocessing, kind)()
    found = WATCH.look(DataLoader(Rows(cache={"lock": lock})))
    assert found.refused is None
    words = "the dataset holds a lock of multiprocessing (cache['lock']): a worker that is killed with it keeps it"
    assert str(found.note).startswith(words)


def test_what_collate_holds_is_the_same() -> None:
    found = WATCH.look(DataLoader(Rows(), collate_fn=captured()))
    assert str(found.refused).startswith("collate_fn holds an open file (file: data.bin)")


def test_glances_take_a_thousandth_of_the_time() -> None:
    now = iter([0, 5_000, 1_000_000, 5_004_999, 5_005_001, 5_005_002])
    watch = HeldWatch(torch, lambda: next(now))
    loader = DataLoader(Rows(file=DATA.open("rb")))
    found = [watch.glance(loader) for _ in range(4)]
    assert [each is not None for each in found] == [True, False, False, True]


# ---- as a change is made ----


class Lazy(Dataset):
    """Opens at the first sample, as the books say; reads by position."""

    file: Any = None

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = DATA.open("rb", buffering=0)
        self.file.seek(index)
        return int(self.file.read(1)[0])


def test_a_file_opened_since_the_epoch_began_is_seen_before_workers_are_started() -> None:
    whole = Lazy()
    loader = DataLoader(Subset(whole, range(24)), batch_size=2)
    with Harness() as harness:
        batches = iter(loader)
        control = harness.control(loader)
        assert control.refusals()["num_workers"].can  # nothing is open yet
        next(batches)
        with pytest.raises(Refused, match=r"holds an open file \(dataset.file: data.bin\), whose position workers"):
            control.plan({"num_workers": 2}, now=True)
        assert not control.refusals()["num_workers"].can
        whole.file.close()
        assert control.plan({"num_workers": 2}, now=True).num_workers == 2


def test_workers_that_would_be_started_anew_are_not_once_the_training_itself_has_opened_it() -> None:
    whole = Lazy()
    loader = DataLoader(Subset(whole, range(24)), batch_size=2)
    with Harness({0: {"num_workers": 2}}) as harness:
        assert [int(each) for batch in loader for each in batch] == list(range(24))
        whole[3]  # a validation on the same data
        assert [int(each) for batch in loader for each in batch] == list(range(24))
        assert harness.control(loader).in_force.num_workers == 0
    (notice,) = harness.notices
    assert "(dataset.file: data.bin)" in notice.reason and notice.in_force.num_workers == 0


def test_the_scripts_own_workers_do_not_come_back_to_what_was_opened_while_they_were_away() -> None:
    whole = Lazy()
    loader = DataLoader(whole, batch_size=2, num_workers=1)
    with Harness({1: {"num_workers": 0}}) as harness:
        for _ in range(2):
            assert [int(each) for batch in loader for each in batch] == list(range(24))
        control = harness.control(loader)
        with pytest.raises(Refused, match="holds an open file"):
            control.plan({"num_workers": "script"})
        whole.file = None
        assert control.plan({"num_workers": "script"}).num_workers == 1


def test_what_the_scripts_own_workers_share_anyway_is_its_affair() -> None:
    loader = DataLoader(Rows(file=DATA.open("rb")), batch_size=2, num_workers=1)
    with Harness() as harness:
        list(loader)
        assert harness.control(loader).plan({"num_workers": 2}).num_workers == 2

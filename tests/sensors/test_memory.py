"""What a run's processes hold: shared pages once, no page cache, and no sum where a living one is closed to us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.sensors.machine import Machine
from cockpit.sensors.memory import EVERY_S, TreeMemory, held_bytes

ROLLUP = (
    "00-ff ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss: 700 kB\n"
    "Pss_Anon: {} kB\nPss_File: 500 kB\nPss_Shmem: 8 kB\nSwapPss: 2 kB\n"
)


def process(proc: Path, pid: int, anon: int | None, cmdline: str = "python") -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "cmdline").write_text(cmdline)
    (proc / str(pid) / "smaps_rollup").write_text("" if anon is None else ROLLUP.format(anon))


def due(tree: TreeMemory) -> TreeMemory:
    """Asked once before, as long ago as it takes."""
    assert tree.read(0.0, (), ()) is None
    return tree


def test_workers_and_all_without_page_cache(tmp_path: Path) -> None:
    process(tmp_path, 1, 100)
    process(tmp_path, 2, 40)
    process(tmp_path, 3, None, cmdline="")  # a zombie holds nothing
    found = due(TreeMemory(tmp_path)).read(EVERY_S, (2,), (1, 2, 3, 999))
    assert found is not None
    assert (found.used_bytes, found.workers_bytes) == (160 * 1024, 50 * 1024)


def test_no_sum_where_one_that_lives_is_closed_to_us(tmp_path: Path) -> None:
    process(tmp_path, 1, 100)
    process(tmp_path, 2, None)
    assert due(TreeMemory(tmp_path)).read(EVERY_S, (), (1, 2)) is None


@pytest.mark.parametrize("text", [None, b"", b"Pss: 7 kB\n", b"Pss_Anon: 7 kB\n"])
def test_an_older_kernel_tells_nothing(text: bytes | None) -> None:
    assert held_bytes(text) is None


def test_it_is_read_rarely_and_more_rarely_where_it_takes_long(tmp_path: Path) -> None:
    process(tmp_path, 1, 100)
    took = iter([0.0, 0.001, 10.0, 10.1, 20.0, 20.1])
    tree = TreeMemory(tmp_path, clock=lambda: next(took))
    first = due(tree).read(EVERY_S, (), (1,))
    assert first is not None and tree.read(2 * EVERY_S - 1, (), (1,)) is first
    second = tree.read(2 * EVERY_S, (), (1,))
    assert second is not first and tree.read(2 * EVERY_S + 99.0, (), (1,)) is second
    assert tree.read(2 * EVERY_S + 101.0, (), (1,)) is not second


def test_the_real_machine_reads_it() -> None:
    machine = Machine()
    assert machine.read(1.0, os.getpid(), ()).memory is None  # it has just begun
    found = machine.read(1.0 + EVERY_S, os.getpid(), ()).memory
    assert found is not None and found.used_bytes > 10**6

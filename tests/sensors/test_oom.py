"""Kills for lack of memory: told where they were counted just now, and never taken from long ago."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.sensors.oom import EVERY_S, LOOKS, OomKills


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/42").mkdir()
    (tmp_path / "sys/fs/cgroup/job").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "proc/42/cgroup").write_text("0::/job\n")
    count(tmp_path, own=3, anybody=9)
    return tmp_path


def count(root: Path, own: int, anybody: int) -> None:
    (root / "sys/fs/cgroup/job/memory.events").write_text(f"low 0\noom 1\noom_kill {own}\noom_group_kill 0\n")
    (root / "proc/vmstat").write_text(f"nr_free_pages 1\noom_kill {anybody}\n")


@pytest.mark.parametrize(
    ("own", "anybody", "words"), [(3, 9, None), (4, 10, "out of memory"), (3, 10, "likely out of memory"), (0, 0, None)]
)
def test_what_was_counted(root: Path, own: int, anybody: int, words: str | None) -> None:
    kills = OomKills(root)
    assert kills.words() is None
    kills.follow(42)
    count(root, own, anybody)
    assert kills.words() == words


def test_one_of_long_ago_is_none_of_this_crash(root: Path) -> None:
    now = [0.0]
    kills = OomKills(root, lambda: now[0])
    kills.follow(42)
    count(root, 4, 10)
    for _ in range(100):
        kills.look()
    assert kills.words() == "out of memory", "looking often does not push it out"
    for _ in range(LOOKS):
        now[0] += EVERY_S
        kills.look()
    assert kills.words() is None


def test_where_nothing_is_counted_nothing_is_said(tmp_path: Path) -> None:
    kills = OomKills(tmp_path)
    kills.follow(42)
    kills.look()
    assert kills.words() is None

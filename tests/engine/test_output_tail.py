"""The newest line of the training's output: cleaned, bounded, whatever happens to the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.engine.hear import Ears
from cockpit.engine.output import LINE_AT_MOST, READ_AT_MOST, Output, clean
from cockpit.engine.record import Record
from cockpit.engine.release import KEEP_BYTES, LOW_BYTES, SLACK_BYTES, release_oldest, room_for
from cockpit.engine.rundir import RunDir
from cockpit.engine.sight import Sight
from cockpit.history.journal import Journal
from cockpit.history.state import State


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", "plain"),
        (b"10%\r20%\r30%", "30%"),
        (b"30%\r", "30%"),
        (b"loss \x1b[1;31m0.5\x1b[0m\x1b[K", "loss 0.5"),
        (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        (b"\x1b[2J\x1b[Hgone", "gone"),
        (b"\x1b(Bx\x1b7y\x1bMz", "xyz"),
        (b"caf\xc3\xa9 \xff\xfe", "caf\u00e9 \ufffd\ufffd"),
        (b"a\tb\x00\x08c\x7f", "a bc"),
        (b"[/markup] [red]", "[/markup] [red]"),
        ("x\u202eevil\u2028y".encode(), "xevily"),
        (b"\x1b[31m \r\n", ""),
        (b"x" * 500, "x" * LINE_AT_MOST),
        (b"half an escape \x1b[12", "half an escape"),
    ],
)
def test_clean(line: bytes, shown: str) -> None:
    assert clean(line) == shown


@given(st.binary(max_size=300))
def test_clean_is_always_harmless(line: bytes) -> None:
    shown = clean(line)
    assert len(shown) <= LINE_AT_MOST
    assert all(char.isprintable() or not char.isascii() for char in shown)
    assert "\x1b" not in shown and "\x9b" not in shown and "\r" not in shown


def test_follows_appends_partial_lines_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    output = Output(path)
    assert not output.look()
    path.write_bytes(b"one\ntw")
    assert output.look() and (output.line, output.written) == ("tw", 6)
    assert not output.look()
    with path.open("ab") as file:
        file.write(b"o\n\n")
    assert output.look() and (output.line, output.written) == ("two", 9)
    path.write_bytes(b"new\n")
    assert output.look() and (output.line, output.written) == ("new", 13)
    path.unlink()
    assert not output.look() and output.line == "new"


def test_next_engine_goes_on_counting(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100 + b"\n")
    assert Output(path, 40).look()
    counted_before_truncation = Output(path, 5000)
    counted_before_truncation.look()
    assert counted_before_truncation.written == 5000
    with path.open("ab") as file:
        file.write(b"y\n")
    counted_before_truncation.look()
    assert counted_before_truncation.written == 5002


def test_reads_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    output = Output(path)
    output.look()
    with path.open("ab") as file:
        file.write(b"z" * 5_000_000 + b"\nlast\n")
    output.look()
    assert (output.line, output.written) == ("last", 5_000_006)
    with path.open("ab") as file:
        file.write(b"e" * (3 * READ_AT_MOST))
    output.look()
    assert output.line == "e" * LINE_AT_MOST
    assert len(output._rest) <= READ_AT_MOST


def test_oldest_output_is_given_back_and_the_newest_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = b"%07d\n"
    with path.open("ab", buffering=0) as training:
        training.write(b"".join(line % number for number in range(1_000_000)))
        assert release_oldest(path, keep_bytes=2**20, slack_bytes=2**25) == 0
        given = release_oldest(path, keep_bytes=2**20, slack_bytes=2**19)
        training.write(line % 1_000_000)
    assert given > 6_000_000 and path.stat().st_size == 8_000_008
    assert path.stat().st_blocks * 512 < 2_000_000
    with path.open("rb") as file:
        first = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        file.seek(first)
        kept = file.read().splitlines()
    assert kept[-1] == b"1000000" and kept == [b"%07d" % number for number in range(int(kept[0]), 1_000_001)]
    assert release_oldest(path, keep_bytes=2**20, slack_bytes=2**19) == 0


@pytest.mark.parametrize(("disk_bytes", "a_second"), [(3 * 2**20, 2**19), (40 * 2**20, 8 * 2**20)])
def test_output_alone_never_fills_its_disk(tmp_path: Path, disk_bytes: int, a_second: int) -> None:
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as training:
        for _ in range(40):
            training.write(b"x" * a_second)
            free = disk_bytes - path.stat().st_blocks * 512
            assert free > 0, "what the training prints has no room"
            release_oldest(path, *room_for(free))
    assert path.stat().st_blocks > 0


def test_while_there_is_room_the_output_stays_as_it_is() -> None:
    assert room_for(None) == room_for(LOW_BYTES) == (KEEP_BYTES, SLACK_BYTES)
    assert 0 < room_for(0)[0] < 2**20, "its newest lines are kept, whoever has filled the disk"


def test_little_room_is_told_once_for_each_halving_and_when_it_is_over(tmp_path: Path, monkeypatch) -> None:
    record = Record(State(), Journal(tmp_path, State()))
    told: list[object] = []
    record.listeners.append(told.append)
    run = RunDir("it", tmp_path, tmp_path)
    sight = Sight(run, record, Ears(), None, None, lambda: 5.0)  # type: ignore[arg-type]
    for mib in (500, 40, 31, 30.5, 29, 12, 0.4, 0.2, 3, 40, 64, 900):
        monkeypatch.setattr("cockpit.engine.sight.free_bytes", lambda folder, mib=mib: int(mib * 2**20))
        sight._see_disk()
    bits = [None if event.free_bytes is None else event.free_bytes / 2**20 for event in told]
    assert bits == pytest.approx([31, 12, 0.4, 3, 40, None], abs=0.01)

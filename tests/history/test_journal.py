"""The journal: what it tells equals what was live, through real JSON, torn lines, many segments and lost ones."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cockpit.engine.record import Record
from cockpit.history.fold import fold_all
from cockpit.history.journal import Journal, has_ended, read_events, read_state, segments
from cockpit.history.state import State
from cockpit.model.events import (
    BaselineSet,
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    EpochEnded,
    Event,
    EventsDropped,
    KnobReport,
    LoaderInfo,
    LoadersSeen,
    MachineSeen,
    OutputSeen,
    ProbeConnected,
    ProbeLost,
    ProcessStarted,
    RunStarted,
    Sampled,
    SetupSaved,
    Stopping,
    TrainingEnded,
)
from cockpit.model.names import SCHEMA

seconds = st.floats(0.0001, 50.0)
maybe = st.none() | seconds
ids = st.sampled_from(["c1", "c2", "c3", "at0"])
knobs = st.dictionaries(st.sampled_from(["num_workers", "pin_memory"]), st.sampled_from([0, 2, True, "script"]))
at = st.floats(1_700_000_000.0, 1_700_100_000.0)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Sampled, at, st.just(0.5), step=st.none() | st.integers(0, 9999), steps=st.integers(0, 9),
        samples=st.none() | st.integers(0, 99), wall_s=maybe, wait_s=maybe, forward_s=maybe, backward_s=maybe,
        optimizer_s=maybe, cpu_main=maybe, queue=st.none() | st.just((1, 4)), cores_busy=st.just((0.25, 0.123456)),
    ),
    st.builds(
        BlockMeasured, at, st.integers(0, 9999), st.integers(1, 99), st.none() | st.integers(1, 999), seconds, maybe,
        seconds, maybe, seconds, seconds, st.integers(0, 9), st.none() | ids, st.integers(0, 9),
    ),
    st.builds(ChangeAsked, at, ids, knobs, st.booleans(), st.none() | st.just("train.py:41"),
              st.sampled_from(["person", "undo", "redo", "schedule"])),
    st.builds(ChangeMoved, at, ids, st.sampled_from(["applying", "settling", "rolled_back", "refused", "dropped"]),
              step=st.integers(0, 99), stall_ms=maybe, drain=st.integers(0, 4), capacity=st.integers(0, 8),
              before=st.none() | knobs, in_force=st.none() | knobs, reason=st.none() | st.text(max_size=5)),
    st.builds(EpochEnded, at, st.just("a.py:4"), st.integers(0, 99), st.integers(0, 99), st.none(), seconds, seconds),
    st.builds(OutputSeen, at, st.text(max_size=20), st.integers(0, 9999)),
    st.builds(ProbeConnected, at, st.integers(1, 3), st.just("2"), st.just("3"), off=st.none() | st.just({"a": "b"})),
    st.builds(ProbeLost, at, st.integers(1, 3)),
    st.builds(MachineSeen, at, seconds, st.just("cgroup"), st.just((0, 1))),
    st.builds(LoadersSeen, at, st.just((LoaderInfo("train.py:41", "train", "map", epoch_start_ms=1.23456789,
                                                   knobs=(KnobReport("num_workers", 0, 2),)),))),
    st.builds(BaselineSet, at), st.builds(SetupSaved, at, st.just("/x")), st.builds(Stopping, at, at),
    st.builds(EventsDropped, at, st.integers(1, 5)), st.builds(TrainingEnded, at, st.none() | st.integers(0, 255)),
)  # fmt: skip


def record(folder: Path, state: State | None = None, **more: Any) -> Record:
    state = state or State()
    return Record(state, Journal(folder, state, **more))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(events, max_size=40), st.integers(0, 3000), st.data())
def test_journal_tells_exactly_the_live_state(
    tmp_path_factory: pytest.TempPathFactory, happened: list[Event], segment_bytes: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    live = record(folder, segment_bytes=segment_bytes)
    live.happen(RunStarted(1.7e9, "train-3f", ("python",), "/", "train.py", {"num_workers": 2}))
    for event in happened:
        live.happen(event)
        if data.draw(st.integers(0, 9)) == 0:
            # an engine dies here, and the next one takes over
            live = record(folder, read_state(folder), segment_bytes=segment_bytes)
    assert read_state(folder) == live.state
    assert fold_all(read_events(folder)) == live.state
    assert live.journal.lost == 0


def beginning(folder: Path, **more: Any) -> Record:
    live = record(folder, **more)
    live.happen(RunStarted(1.7e9, "train-3f", ("python",), "/", "train.py", {}))
    live.happen(ProcessStarted(1.7e9, 4711))
    return live


def sample(number: int) -> Sampled:
    return Sampled(1.7e9 + number / 2, 0.5, step=number, steps=1, samples=8, wall_s=0.5, cores_busy=(0.5,) * 8)


def test_torn_and_damaged_lines_cost_only_themselves(tmp_path: Path) -> None:
    live = beginning(tmp_path)
    live.happen(sample(1))
    before = live.state
    path = segments(tmp_path)[-1][1]
    whole = path.read_bytes()
    live.happen(sample(2))
    for cut in range(len(whole) + 1, path.stat().st_size):
        (tmp_path / "cut").mkdir(exist_ok=True)
        (tmp_path / "cut" / path.name).write_bytes(path.read_bytes()[:cut])
        assert read_state(tmp_path / "cut") in (before, live.state)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"\x00\xff garbage", b"[1]", b'{"e":"Unknown"}', *lines[1:]]))
    assert read_state(tmp_path) == live.state


def test_engine_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    live = beginning(tmp_path)
    path = segments(tmp_path)[-1][1]
    with path.open("ab") as file:
        file.write(b'{"e":"Sampled","at_s":17')
    again = record(tmp_path, read_state(tmp_path))
    again.happen(sample(3))
    assert read_state(tmp_path) == again.state and again.state.pid == live.state.pid
    assert [number for number, _ in segments(tmp_path)] == [1, 2]


def test_segment_without_its_snapshot_is_read_from_the_one_before(tmp_path: Path) -> None:
    live = beginning(tmp_path, segment_bytes=2000)
    for number in range(30):
        live.happen(sample(number))
    last = segments(tmp_path)[-1][1]
    lines = last.read_bytes().split(b"\n")
    last.write_bytes(b"\n".join([lines[0][:100], *lines[1:]]))
    assert read_state(tmp_path) == live.state


def test_closed_segments_are_packed_and_each_opens_with_a_snapshot(tmp_path: Path) -> None:
    live = beginning(tmp_path, segment_bytes=2000)
    for number in range(60):
        live.happen(sample(number))
    found = segments(tmp_path)
    assert len(found) > 3 and [path.suffix for _, path in found] == [".gz"] * (len(found) - 1) + [".jsonl"]
    for _, path in found:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        opening = json.loads(text.split(b"\n")[0])
        assert "snapshot" in opening and opening["schema"] == SCHEMA
        assert path.stat().st_mode & 0o077 == 0
    assert fold_all(read_events(found[0][1])).run == "train-3f"
    assert not list(tmp_path.glob("*.new"))


def test_what_a_newer_cockpit_wrote_is_not_guessed_at(tmp_path: Path) -> None:
    live = beginning(tmp_path, segment_bytes=2000)
    for number in range(30):
        live.happen(sample(number))
    (tmp_path / "journal-000099.jsonl").write_text(
        json.dumps({"schema": SCHEMA + 1, "snapshot": {"run": "later"}}) + "\n"
    )
    assert read_state(tmp_path) is None


def test_old_segments_shrink_and_changes_are_never_lost(tmp_path: Path) -> None:
    live = beginning(tmp_path, segment_bytes=20_000, total_bytes=60_000)
    for number in range(3000):
        live.happen(sample(number))
        live.happen(BlockMeasured(1.7e9 + number / 2, number, 10, 80, 0.5, 0.1, 0.0, 0.1, 0.2, 0.1, 0))
        if number % 300 == 7:
            live.happen(ChangeAsked(1.7e9 + number / 2, f"c{number}", {"num_workers": number % 5}))
    found = segments(tmp_path)
    assert sum(path.stat().st_size for _, path in found[:-1]) <= 60_000
    kept = list(read_events(tmp_path))
    assert [event.id for event in kept if isinstance(event, ChangeAsked)] == [f"c{n}" for n in range(7, 3000, 300)]
    assert 0 < sum(isinstance(event, Sampled) for event in kept) < 3000
    assert read_state(tmp_path) == live.state
    names = [path.name for _, path in found]
    assert "-bare" in names[0] and names[-1].endswith(".jsonl")


def test_full_or_vanished_disk_is_counted_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = beginning(tmp_path)
    real = os.write

    def full(file: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    def half(file: int, content: bytes) -> int:
        return real(file, content[: len(content) // 2])

    for broken in (full, half):
        monkeypatch.setattr(os, "write", broken)
        live.happen(sample(1))
        monkeypatch.setattr(os, "write", real)
        live.happen(sample(2))
        live.happen(ProbeLost(1.7e9, 3))
        told = read_state(tmp_path)
        assert told is not None and told.pid == 4711
        for number in range(3, 30):
            live.happen(sample(number))
        assert read_state(tmp_path) == live.state and live.state.step == 29
    assert 0 < live.journal.lost < 60
    gone = tmp_path / "gone"
    gone.mkdir()
    later = beginning(gone)
    (gone / segments(gone)[0][1].name).unlink()
    gone.rmdir()
    later.happen(sample(1))
    assert later.state.step == 1


def test_nothing_to_read(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None and read_state(tmp_path / "gone") is None
    assert list(read_events(tmp_path)) == [] and not has_ended(tmp_path)


def test_the_end_is_seen_quickly(tmp_path: Path) -> None:
    live = beginning(tmp_path)
    assert not has_ended(tmp_path)
    live.happen(OutputSeen(1.7e9, '{"e":"TrainingEnded" is what it printed', 9))
    assert not has_ended(tmp_path)
    live.happen(TrainingEnded(1.7e9, 0))
    live.happen(SetupSaved(1.7e9, "/x"))
    assert has_ended(tmp_path)
    later = record(tmp_path, read_state(tmp_path))
    assert len(segments(tmp_path)) == 1, "looking leaves no trace"
    later.happen(SetupSaved(1.7e9, "/y"))
    assert len(segments(tmp_path)) == 2 and has_ended(tmp_path)


@pytest.mark.long
def test_a_day_stays_under_fifteen_megabytes(tmp_path: Path) -> None:
    import random

    rng = random.Random(7)
    live = beginning(tmp_path)
    at_s, step = 1.7e9, 0
    for number in range(24 * 7200):
        at_s, step = at_s + 0.5 + rng.random() / 500, step + rng.randint(8, 14)
        parts = [rng.gauss(0.1, 0.01) for _ in range(6)]
        live.happen(
            Sampled(at_s, rng.gauss(0.5, 0.01), step, step // 5000, step % 5000, step, 10, 320, *parts, "forward",
                    rng.random() / 100, (3, 8), "starved", *parts[:4], tuple(rng.random() for _ in range(8)))
        )  # fmt: skip
        live.happen(BlockMeasured(at_s, step, 10, 320, *parts, step // 5000, None, 8))
        if number % 2 == 0:
            live.happen(OutputSeen(at_s, f"epoch {step // 5000} step {step} loss {rng.random():.4f}", number * 60))
    assert sum(path.stat().st_size for _, path in segments(tmp_path)) < 15_000_000
    assert read_state(tmp_path) == live.state

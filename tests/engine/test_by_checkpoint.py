"""Scripts that resume by themselves: a training that runs well is not stopped for a wrong file, nor lost to one."""

from __future__ import annotations

import json
import os
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_runs import Started, scripted, wait_for
from support.events import Story, beginning

from cockpit.engine.by_checkpoint import THROUGH, Asked, ByCheckpoint
from cockpit.engine.crash_plan import Base
from cockpit.engine.crashes import Crashes
from cockpit.engine.processes import Pids
from cockpit.engine.rundir import new_rundir, safe_sockets
from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.probe import lives
from cockpit.probe.leaving import LEFT

RESUME = "--resume {checkpoint}"
SOON = (0.05, 0.1, 0.15)


def training(*options: object) -> list[str]:
    return scripted("--steps", 20, "--speed", 20, "--print-every", 5, *options)


def archive(path: Path, content: dict[str, int]) -> None:
    """Whole, of torch's outer form, and with or without what the script resumes from."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path.with_suffix(".tmp"), "w") as file:
        file.writestr("archive/data.pkl", json.dumps(content))
        file.writestr("archive/version", "3")
    path.with_suffix(".tmp").rename(path)


def text(run: Started) -> str:
    return run.run.output.read_text()


def ended(run: Started) -> State:
    assert run.ask("stop", force=True)["ok"]
    return run.ended()


def test_without_a_pattern_nothing_is_stopped_for_a_guess(start, tmp_path: Path) -> None:
    run: Started = start(training("--epochs", 99_999, "--save-every", 20), resume_with=RESUME)
    run.until("steps", lambda status: status["step"])
    looked = run.ask("restart", env={}, only_look=True)["result"]["reason"]
    for more in ({}, {"now": True}):
        answer = run.ask("restart", env={"MINE": "7"}, **more)
        assert not answer["ok"] and "--checkpoints PATTERN" in answer["error"] and answer["error"] == looked
    archive(tmp_path / "predictions.pt", {})
    assert run.status()["ledger"] == [] and run.status()["state"] == "running"
    ended(run)


@pytest.mark.long
def test_stopped_for_a_file_that_nothing_resumes_from_it_goes_on_from_the_one_before(start, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    archive(folder / "good.pt", {"step": 40, "epoch": 2})
    more = {"resume_with": RESUME, "checkpoints": "out/*.pt", "crash_waits_s": SOON}
    run: Started = start(training("--epochs", 99_999), **more)
    run.until("steps", lambda status: status["step"])
    change = run.ask("restart", env={"MINE": "7"})["result"]["id"]
    archive(folder / "predictions.pt", {})
    wait_for(lambda: "resumes at" in text(run), "on from epoch 2, though nobody had asked for tries")
    run.until("it trains", lambda status: status["state"] == "running" and status["step"])
    state = ended(run)
    assert text(run).count("resumes at epoch 2 step 40") == 1 and text(run).count("KeyError") >= 2
    (entry,) = [each for each in state.ledger if each.id == change]
    told = f"{entry.note} {entry.reason}"
    assert "the checkpoint out/predictions.pt" in told and "hand-off" not in told, entry
    (tried,) = [each for each in state.ledger if each.origin == "crash"]
    assert "goes on from the checkpoint out/good.pt" in (tried.note or ""), tried
    assert b"MINE=7" not in (run.run.life / lives.PLAN).read_bytes()


@pytest.mark.long
def test_a_try_goes_on_from_the_one_before_where_the_newest_was_in_vain(start, tmp_path: Path) -> None:
    archive(tmp_path / "predictions.pt", {})
    later = time.time() + 3600
    os.utime(tmp_path / "predictions.pt", (later, later))
    words = training("--epochs", 4, "--save-every", 15, "--crash-at", 50)
    run: Started = start(words, resume_with=RESUME, on_crash=True, crash_waits_s=SOON)
    state = run.ended(120.0)
    assert state.exit_status == 0 and "resumes at epoch 2 step 45" in text(run)
    notes = [entry.note or "" for entry in state.ledger]
    assert "predictions.pt" in notes[0] and "ckpt/45.pt" in notes[1] and len(notes) == 2, notes


@pytest.mark.long
def test_a_good_file_is_not_blamed_for_an_environment_that_fails(start, tmp_path: Path) -> None:
    archive(tmp_path / "out" / "1.pt", {"step": 20, "epoch": 1})
    command = training("--epochs", 99_999, "--fail-if", "BAD=9")
    run: Started = start(command, resume_with=RESUME, checkpoints="out/*.pt", crash_waits_s=SOON)
    run.until("steps", lambda status: status["step"])
    change = run.ask("restart", env={"BAD": "1"})["result"]["id"]
    archive(tmp_path / "out" / "2.pt", {"step": 40, "epoch": 2})
    wait_for(lambda: "resumes at epoch 2" in text(run), "on from it")
    run.until("it is told", lambda status: status["ledger"][0]["outcome"])
    (entry,) = ended(run).ledger
    assert entry.id == change and entry.state == "rolled_back", entry
    assert "goes on from the checkpoint out/2.pt as it was before" in (entry.reason or "")


class Record:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.state = State(phase="stopping")

    def happen(self, event: Any) -> None:
        self.events.append(event)


def stopped_for(
    had_ended: bool = False, still: str | None = None, newest: Base | None = None
) -> tuple[ByCheckpoint, Record, list[tuple[Any, ...]]]:
    """Over a training that has ended so; what it records, and what it has begun."""
    record, begun = Record(), list[tuple[Any, ...]]()
    crashes: Any = SimpleNamespace(
        had_ended=lambda pids, by_s: had_ended,
        still=lambda: still,
        bases=SimpleNamespace(checkpoint=lambda state, quiet: (newest, None)),
        follow=lambda *words, **more: begun.append(words),
    )
    return ByCheckpoint(record, {"c1"}, crashes, None, None, lambda: 5.0), record, begun  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("had_ended", "still", "reason"),
    [(True, None, THROUGH), (False, "process 7 still trains", "process 7 still trains"), (False, None, None)],
)
def test_who_had_ended_by_itself_is_not_begun_again_nor_beside_anybody(had_ended, still, reason) -> None:
    asked, record, begun = stopped_for(had_ended=had_ended, still=still)
    asked._asked = Asked("c1", None, "key", False, Base("the checkpoint 1.pt", "key"), 4.0)  # type: ignore[arg-type]
    assert asked.after_the_end(Pids(1, 2)) is (reason is None) and len(begun) == (reason is None)
    assert [event.reason for event in record.events] == ([reason] if reason else [])


def test_the_line_names_the_checkpoint_that_it_went_on_from() -> None:
    """It had saved once more by the time that it ended."""
    older, newer = Base("the checkpoint 7.pt", "7"), Base("the checkpoint 9.pt", "9")
    asked, record, begun = stopped_for(newest=newer)
    for at in (older, newer):
        asked._asked = Asked("c1", None, "key", False, at, 4.0)  # type: ignore[arg-type]
        assert asked.after_the_end(Pids(1, 2)) and begun[-1][1] is newer
    (told,) = record.events
    assert (told.id, told.state) == ("c1", "queued") and "goes on from the checkpoint 9.pt" in told.note


@pytest.mark.parametrize(
    ("left", "had"),
    [
        ({"pid": 2, "trains": True, "error": None, "at_s": 10.0}, True),
        ({"pid": 2, "trains": True, "error": None, "at_s": 30.0}, False),
        ({"pid": 2, "trains": True, "error": "RuntimeError: no", "at_s": 10.0}, False),
        ({"pid": 3, "trains": True, "error": None, "at_s": 10.0}, False),
        (None, False),
    ],
)
def test_whether_it_had_ended_before_it_was_told_to(state_dir: Path, left, had: bool) -> None:
    run = new_rundir("it", None, state_dir / "runs", safe_sockets())
    (run.data / lives.EXIT).write_text("0\n")
    if left is not None:
        (run.data / LEFT).write_text(json.dumps(left))
    crashes = Crashes.__new__(Crashes)
    crashes._run = run
    assert crashes.had_ended(Pids(1, 2), 20.0) is had
    assert left is not None or crashes.had_ended(Pids(1, 2), time.time() + 9.0), "its status was written before"


def test_a_training_that_runs_is_not_stopped_where_no_next_one_could_be_started() -> None:
    """Its checkpoint has just filled the disk."""
    stops: list[int] = []
    room: list[str | None] = ["no room", "no room", None]
    crashes: Any = SimpleNamespace(
        no_room=lambda: room.pop(0),
        bases=SimpleNamespace(checkpoint=lambda state, quiet: (Base("the checkpoint 9.pt", "9"), None)),
    )
    record = Record()
    record.state = fold_all([*beginning(), Story().asked("c1", {"env MINE": "7"})])
    asked = ByCheckpoint(record, {"c1"}, crashes, None, lambda: stops.append(1), lambda: 5.0)  # type: ignore[arg-type]
    asked._asked = Asked("c1", None, "7", False)  # type: ignore[arg-type]
    told = []
    for _ in range(3):
        asked._looked_s = float("-inf")
        asked.look()
        record.state = fold_all(record.events, record.state)
        told.append((len(stops), [event.note for event in record.events]))
        record.events.clear()
    assert told[0] == (0, ["the training goes on: no room"]) and told[1] == (0, [])
    assert told[2] == (1, ["the training is stopped, and goes on from the checkpoint 9.pt"])

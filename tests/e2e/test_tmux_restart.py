"""A hot restart on a real screen: choose a variable, read what it costs, restart; the line of the last change stays."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bare import clean_env
from support.outcome import REPO, TRAINERS
from support.tmux import Terminal
from support.under import peek, processes_of, status, wait_until

SCRIPTED = ("-m", "cockpit.engine.scripted", "--session", "--epochs", "100000", "--steps", "60", "--speed", "10")
"""A training in all but torch, ten times as fast: the processes, files and words of a restart are the real ones."""
NAME = "OMP_NUM_THREADS"

Open = Callable[..., Terminal]


@pytest.fixture
def terminal(state_dir: Path) -> Iterator[Open]:
    """``run`` of a command in a terminal of some size; it is closed at the end, and the run with it."""
    opened: list[Terminal] = []

    def open_one(*command: str, size: tuple[int, int], **env: str) -> Terminal:
        told = {**clean_env(env), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(REPO), NAME: "1"}
        words = ["-m", "cockpit.cli.main", "run", "--state-dir", str(state_dir), "--name", "it", "--", sys.executable]
        opened.append(Terminal(state_dir / "terminal", [sys.executable, *words, *command], told, *size))
        return opened[-1]

    yield open_one
    for one in opened:
        one.keys("q")
        one.wait_for("detach")
        one.keys("s")
        wait_until(lambda: peek(state_dir)["state"] == "ended", "the end")
        one.close()
    wait_until(lambda: not processes_of(state_dir), "the end of every process of the run")


def newest(state_dir: Path) -> dict[str, Any]:
    return status(state_dir)["ledger"][-1]


def restart_and_watch(screen: Terminal, state_dir: Path, until_s: float) -> list[str]:
    """All pictures from the asking until the new process is measured."""
    screen.keys("r")
    screen.wait_for("no step is lost", 30)
    screen.keys("Right")
    screen.wait_for(re.compile(rf"{NAME} +1 +→2").search)
    screen.keys("r")
    text = screen.wait_for("enter restart")
    assert re.search(rf"{NAME} +1 → 2", text) and "called off" in text, text
    assert not any(f"env {NAME}" in entry["change"] for entry in status(state_dir)["ledger"]), "not by these keys"
    screen.keys("Enter")
    screen.wait_for("PREPARING")
    pictures, end = [], time.monotonic() + until_s
    while time.monotonic() < end:
        pictures.append(screen.screen())
        if len(pictures) % 10 == 0 and newest(state_dir)["state"] in ("settling", "kept"):
            return pictures
    raise AssertionError(f"not in force within {until_s} s; the screen:\n{pictures[-1]}")


def check(screen: Terminal, state_dir: Path, pictures: list[str], line: str) -> None:
    """The line never breaks: it tells of the change before until it tells of the restart; no step goes back."""
    told = [picture.splitlines()[2] for picture in pictures]
    assert all(line in row or f"{NAME} 1→2" in row for row in told), [row for row in told if line not in row][:3]
    assert line in told[0]
    badges = [picture.splitlines()[0] for picture in pictures]
    assert not any("LOST" in row or "STALLED" in row or "ENDED" in row for row in badges), badges
    steps = [int(found[1]) for row in badges if (found := re.search(r"epoch +(\d+)", row.replace(" ", " ")))]
    assert steps == sorted(steps), steps
    screen.keys("Escape")  # a notice, where one is still there
    screen.wait_for(lambda text: "calls it off" not in text)
    screen.keys(*["Escape"] * ("RESTART" in screen.screen()))
    screen.wait_for(re.compile(r"\d OMP_NUM\S* ?1→2").search)
    entry = wait_until(lambda: (last := newest(state_dir))["outcome"] and last, "the outcome", 240)
    assert (entry["outcome"], entry["change"]) == ("kept", {f"env {NAME}": ["1", "2"]}), entry
    screen.wait_for(lambda text: f"{NAME} 1→2" in text.splitlines()[2] and "settling" not in text.splitlines()[2], 30)


def test_another_environment_and_the_line_stays(terminal: Open, state_dir: Path) -> None:
    screen = terminal(*SCRIPTED, size=(80, 24))
    screen.wait_for(re.compile(r"baseline +\d").search)
    wait_until(lambda: peek(state_dir)["step"] > 700, "windows before the change")
    screen.keys("1", "Right", "Right", "a")
    screen.wait_for(lambda text: "faster" in text.splitlines()[2])
    before = status(state_dir)
    pictures = restart_and_watch(screen, state_dir, 120)
    check(screen, state_dir, pictures, "num_workers 0→2")
    after = status(state_dir)
    assert after["pid"] != before["pid"] and after["step"] > before["step"]
    assert after["environment"] == {NAME: "2"} and after["knobs"]["num_workers"]["in_force"] == 2
    screen.keys("s")
    text = screen.wait_for("save this setup")
    assert re.search(rf"{NAME} +1 → 2", text), text
    screen.keys("Escape")  # a key that came in one piece with it would be another one
    screen.wait_for(lambda text: "save this setup" not in text)
    screen.keys("u")  # back, by another restart, which the end of the run finds under way
    screen.wait_for(re.compile(r"restart (a process gets ready|when its epoch ends)").search)


@pytest.mark.long
def test_a_real_training_on_a_wide_screen(terminal: Open, state_dir: Path) -> None:
    env = {"PAUSE_S": "0.05", "EPOCHS": "100000"}
    screen = terminal(str(TRAINERS / "restarted.py"), size=(120, 40), **env)
    screen.wait_for(re.compile(r"\d samples/s").search, 240)
    screen.keys("1", "Right", "a")
    screen.wait_for(lambda text: "num_workers 0→1" in text.splitlines()[2], 120)
    pictures = restart_and_watch(screen, state_dir, 240)
    check(screen, state_dir, pictures, "num_workers 0→1")
    (ready,) = state_dir.glob("runs/*/life-2/ready.json")
    assert json.loads(ready.read_text())["torch"] is True

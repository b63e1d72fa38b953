"""The installed wheel in a real terminal of 80×24: turn a knob, read the trial off the screen, lose the screen."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sensors.conftest import compiled
from support.bare import clean_env, run_bare
from support.installed import build_wheel, install_wheel
from support.outcome import TRAINERS
from support.tmux import Terminal
from support.under import peek, processes_of, status, wait_until

Screen = Callable[..., Terminal]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return install_wheel(build_wheel(folder), folder / "env")


@pytest.fixture
def terminal(programs: Path, state_dir: Path) -> Iterator[Screen]:
    """Open a terminal with ``cockpit`` and the given words in it; all are closed at the end of the test."""
    opened: list[Terminal] = []

    def open_one(*words: str, size: tuple[int, int] = (80, 24), **env: str) -> Terminal:
        all_env = {**clean_env(env), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
        verb, *rest = words
        folder = state_dir / f"terminal{len(opened)}"
        command = [str(programs / "cockpit"), verb, "--state-dir", str(state_dir), *rest]
        opened.append(Terminal(folder, command, all_env, *size))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def slow(state_dir: Path) -> dict[str, str]:
    """A training held back by its loader, which goes on until the file ``enough`` is there."""
    return {"PAUSE_S": "0.002", "SAMPLES": "800", "EPOCHS": "100000", "UNTIL": str(state_dir / "enough")}


RUN_SLOW = ("run", "--name", "it", str(TRAINERS / "slow.py"))


def enough(state_dir: Path) -> None:
    (state_dir / "enough").touch()


def in_state(state_dir: Path, *states: str) -> dict[str, Any] | None:
    """The first change of the ledger that has come so far."""
    return next((entry for entry in peek(state_dir)["ledger"] if entry["state"] in states), None)


def ledger(state_dir: Path) -> list[dict[str, Any]]:
    return status(state_dir)["ledger"]


def test_turn_a_knob_and_read_the_trial(terminal: Screen, state_dir: Path) -> None:
    """The whole story: start, watch, turn ``num_workers`` up now, read what it gave, leave, come back, end."""
    screen = terminal(*RUN_SLOW, **slow(state_dir))
    screen.wait_for(lambda text: re.search(r"num_workers\s.*\b0\b", text))
    screen.wait_for(lambda text: re.search(r"\d+ samples/s", text))
    # six windows of at least two seconds, the first thrown away: fewer allow no verdict
    wait_until(lambda: (peek(state_dir)["step"] or 0) > 1_000, "enough windows before the change", 120)
    screen.keys("1", "Right", "Right")
    screen.wait_for(lambda text: re.search(r"num_workers.*\b0\b.*\b2\b", text))
    screen.keys("a")
    entry = wait_until(lambda: in_state(state_dir, "settling", "kept"), "the change")
    assert entry["change"] == {"num_workers": [0, 2]}
    screen.wait_for(lambda text: re.search(r"num_workers 0\s*→\s*2", text))
    kept = wait_until(
        lambda: (found := in_state(state_dir, "kept")) and found["verdict"] == "faster" and found, "the trial", 120
    )
    assert kept["after"]["samples_per_s"] > 1.1 * kept["before"]["samples_per_s"]
    text = screen.wait_for("faster", 30)
    assert re.search(r"num_workers 0→2\s+\d+\s+▲?\s*\+\d+", text), text
    assert len(text.splitlines()) <= 24
    screen.keys("q")
    screen.wait_for("detach")
    screen.keys("d")
    assert screen.status() == 0
    assert (screen.flags()["alternate_on"], screen.flags()["cursor_flag"]) == ("0", "1")
    assert status(state_dir)["state"] == "running"
    again = terminal("attach", "it")
    again.wait_for("faster")
    enough(state_dir)
    again.wait_for("ENDED")
    again.keys("q")
    assert again.status() == 0


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGHUP, marks=pytest.mark.long, id="SIGHUP"), pytest.param(signal.SIGKILL, id="SIGKILL")],
)
def test_losing_the_screen_in_the_middle_of_a_change(terminal: Screen, state_dir: Path, how: signal.Signals) -> None:
    screen = terminal(*RUN_SLOW, **slow(state_dir))
    screen.wait_for(lambda text: re.search(r"\d+ samples/s", text))
    screen.keys("1", "Right", "Right", "a")
    wait_until(lambda: peek(state_dir)["ledger"], "the asking", every_s=0.02)
    os.kill(program_in(screen), how)
    assert screen.status() == (0 if how is signal.SIGHUP else 128 + how)
    wait_until(lambda: in_state(state_dir, "settling", "kept"), "the change")
    before = status(state_dir)["step"]
    wait_until(lambda: peek(state_dir)["step"] > before, "the next step")
    if how is signal.SIGHUP:
        assert screen.flags()["alternate_on"] == "0"
    again = terminal("attach", "it")
    again.wait_for(lambda text: re.search(r"num_workers 0\s*→\s*2", text))
    enough(state_dir)
    again.wait_for("ENDED")
    assert status(state_dir)["exit_status"] == 0
    assert b"FINAL " in (state_dir / "runs" / "it" / "output.log").read_bytes()
    again.keys("q")
    again.status()
    later = terminal("attach", "it")
    later.wait_for(lambda text: "ENDED" in text and re.search(r"num_workers 0\s*→\s*2", text))
    later.keys("q")
    wait_until(lambda: not training_processes(state_dir), "the end of every process of the training")


def test_closing_the_terminal_itself(terminal: Screen, state_dir: Path) -> None:
    """Ctrl-C twice leaves; the whole terminal goes, as when an SSH link breaks: the training never notices."""
    screen = terminal(*RUN_SLOW, **slow(state_dir))
    screen.wait_for(lambda text: re.search(r"\d+ samples/s", text))
    other = terminal("attach", "it")
    other.wait_for(lambda text: re.search(r"\d+ samples/s", text))
    other.keys("C-c")
    other.wait_for("detach")
    other.keys("C-c")
    assert other.status() == 0
    screen.close()
    before = status(state_dir)["step"]
    wait_until(lambda: peek(state_dir)["step"] > before, "the next step")
    enough(state_dir)
    wait_until(lambda: peek(state_dir)["state"] == "ended", "the end")
    assert status(state_dir)["exit_status"] == 0


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("dropout.py",), marks=pytest.mark.long, id="dropout.py"),
        pytest.param(("-W", "error", "augment.py"), id="augment.py"),
        pytest.param(("compiled.py",), marks=pytest.mark.long, id="compiled.py"),
    ],
)
def test_the_screen_leaves_no_trace_in_the_training(terminal: Screen, state_dir: Path, words: tuple[str, ...]) -> None:
    """With the screen open and its panels being used, the output equals a bare run's to the byte."""
    command = [sys.executable, *words[:-1], str(TRAINERS / words[-1])]
    env = {"EPOCHS": "3", "SAMPLES": "400", "PAUSE_S": "0.005"}
    screen = terminal("run", "--name", "it", "--", *command, **env)
    screen.wait_for("num_workers")
    for keys in (
        ("Down",),
        ("Up",),
        ("?",),
        ("Escape",),
        ("?",),
        ("Escape",),
        ("z",),
        ("t",),
        ("G",),
        ("v",),
        ("v",),
        ("v",),
        ("/",),
        ("1", "Enter"),
        ("v",),
        ("Enter",),
        ("q",),
        ("b",),
    ):
        screen.keys(*keys)
    screen.resize(120, 40)
    screen.wait_for("ENDED", 120)
    screen.keys("q")
    assert screen.status() == 0
    bare = run_bare(command, state_dir, env)
    assert (state_dir / "runs" / "it" / "output.log").read_bytes() == bare.output


BUSY = {"uuid": "GPU-0a1b2c3d-aabbcc", "name": "NVIDIA H100", "util": 94, "temperature": 61, "power_mw": 412000}
MEMORY = {"memory_total": 80 * 2**30, "memory_used": 30 * 2**30}


def test_a_gpu_and_the_output_on_the_screen(terminal: Screen, state_dir: Path, tmp_path: Path) -> None:
    """Chart and card of a made-up device, which falls ill; the output searched; a second screen that may only look."""
    script, told = state_dir / "devices", compiled(tmp_path)
    say(script, BUSY | MEMORY)
    words = ("run", "--name", "it", str(TRAINERS / "pretends.py"))
    env = {**slow(state_dir), "SAMPLES": "80", "LD_LIBRARY_PATH": str(told), "NVML_STUB": str(script)}
    screen = terminal(*words, size=(120, 40), **env)
    text = screen.wait_for(lambda text: re.search(r"^GPU +94%", text, re.M) and "kernel active" in text)
    assert re.search(r"^unverified", text, re.M), text
    assert re.search(r"GPU NVIDIA H100 aabbcc · 61 °C .*NVML \(unverified\)", text), text
    assert re.search(r"kernel active +━+ +94% +memory +━+ +30\.0 of 80\.0 GiB", text), text
    assert "no GPU" not in text
    say(script, {**BUSY, **MEMORY, "util": "!3"})
    text = screen.wait_for(lambda text: re.search(r"^GPU +–", text, re.M))
    assert re.search(r"kernel active +N/A", text) and not re.search(r"kernel active.* 0%", text), text
    screen.keys("/")
    screen.wait_for("find in the output")
    screen.keys("epoch 1")
    text = screen.wait_for(lambda text: re.search(r"▸ epoch 1\d*", text) and "OUTPUT  lines" in text)
    screen.keys("Enter", "N")
    screen.wait_for(lambda text: re.search(r"find epoch 1 +\d+ of \d+ lines", text))
    screen.keys("Escape", "Escape")
    screen.wait_for("SETTINGS")
    say(script, {**BUSY, **MEMORY, "util": "!15"})
    screen.wait_for("bus")
    other = terminal("attach", "--readonly", "--glyphs", "ascii", "it", size=(80, 24))
    other.wait_for("samples/s")
    other.keys("Right", "a")
    text = other.wait_for("this screen is read only")
    assert text.isascii() and "read only" in text.splitlines()[-1]
    assert not ledger(state_dir)
    enough(state_dir)
    screen.wait_for("ENDED")


def say(script: Path, device: dict[str, object]) -> None:
    """What the made-up driver says from now on."""
    lines = ["driver=580.1", "count=1", *(f"{key}.0={value}" for key, value in device.items())]
    script.with_suffix(".new").write_text("\n".join(lines) + "\n")
    script.with_suffix(".new").replace(script)


def test_output_cannot_hurt_the_screen(terminal: Screen, state_dir: Path) -> None:
    """Megabytes, control codes, markup, invalid bytes, bars, a long line, /dev/tty, stdin: rows stay, keys answer."""
    kinds = ["controls", "markup", "invalid", "wide", "bars", "tty", "read", "long_line", "megabytes"] * 6
    screen = terminal("run", "--name", "it", str(TRAINERS / "flood.py"), *kinds, REST_S="0.2")
    screen.wait_for("num_workers")
    for _ in range(3):
        screen.keys("?")
        screen.wait_for("this page", 20)
        screen.keys("Escape")
        screen.wait_for(lambda text: "this page" not in text, 20)
    screen.wait_for("ENDED", 120)
    text = screen.screen()
    assert "FLOOD OVER" in text
    assert "hello from /dev/tty" not in text
    assert screen.flags()["alternate_on"] == "1"
    screen.keys("q")
    assert screen.status() == 0
    assert screen.flags()["alternate_on"] == "0"


def test_no_terminal_to_attach_in(programs: Path, state_dir: Path) -> None:
    """Without a terminal ``attach`` says so in one sentence, and then says in plain lines what there is to see."""
    words = [str(programs / "cockpit"), "run", "--detach", "--state-dir", str(state_dir), "--name", "it"]
    started = subprocess.run(
        [*words, str(TRAINERS / "slow.py")],
        env=clean_env(slow(state_dir)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert started.returncode == 0, started.stderr
    wait_until(lambda: peek(state_dir)["step"], "the first step")
    enough(state_dir)
    attached = subprocess.run(
        [str(programs / "cockpit"), "attach", "--state-dir", str(state_dir), "it"],
        env=clean_env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "terminal" in attached.stderr.splitlines()[0]
    assert "\x1b" not in attached.stderr + attached.stdout


def program_in(screen: Terminal) -> int:
    """The cockpit process in the pane."""
    shell = screen.pid()
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return int(children[0])


def training_processes(state_dir: Path) -> list[int]:
    """Processes that run the trainer, its loader workers included (tmux holds the whole command in one word)."""
    found = []
    for pid in processes_of(state_dir):
        with contextlib.suppress(OSError):
            if os.fsencode(TRAINERS / "slow.py") in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found

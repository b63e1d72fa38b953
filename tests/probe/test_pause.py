"""Paused trainings as real processes: the same losses to the bit, and signals, forks and a lost engine meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_engine import FakeEngine, bare_env, finish, launch, probe_env, script

TRAINERS = Path(__file__).resolve().parents[1] / "trainers"
SLOW = {"EPOCHS": "3", "SAMPLES": "160", "PAUSE_S": "0.003", "PYTHONUNBUFFERED": "1"}


def losses(text: str) -> list[str]:
    return re.findall(r"(?:loss|validation|critic) (.+)", text)


def started(name: str | Path, folder: Path, **more: str):
    engine = FakeEngine(_made(folder) / "s")
    return engine, launch(TRAINERS / name, probe_env(folder, **{**SLOW, **more}))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pause(engine: FakeEngine, name: str) -> dict:
    engine.send(m="pause", id=name)
    return engine.wait("pause", id=name, state="paused")


def resume(engine: FakeEngine, name: str) -> dict:
    engine.send(m="resume", id=name)
    return engine.wait("pause", id=name, state="over")


def stands_still(engine: FakeEngine) -> bool:
    """No step ends in three beats."""
    before = len(engine.of("tick"))
    until = time.monotonic() + 30
    while len(engine.of("tick")) < before + 3 and time.monotonic() < until:
        time.sleep(0.05)
    told = engine.of("tick")[before:]
    return len(told) >= 3 and len({m["step"] for m in told}) == 1 and all(m["doing"] == "paused" for m in told[1:])


def scene(engine: FakeEngine, process, change: dict | None) -> None:
    """Two pauses; in the first one the training is suspended for a while, and asked for a change."""
    engine.wait("block")
    pause(engine, "p1")
    assert stands_still(engine)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGCONT)
    if change:
        engine.ask("c", now=True, **change)
    assert stands_still(engine), "nor does a suspension end it"
    resume(engine, "p1")
    if change:
        assert engine.wait("change", id="c", state="settling")["in_force"].items() >= change.items()
    pause(engine, "p2")
    resume(engine, "p2")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plain.py", {"num_workers": 2}),
        pytest.param("persistent.py", None, marks=pytest.mark.long),
        pytest.param("no_loader.py", None, marks=pytest.mark.long),
        pytest.param("validation.py", {"num_workers": 1}, marks=pytest.mark.long),
        pytest.param("plain.py", None, marks=pytest.mark.long),
        pytest.param("gan.py", None, marks=pytest.mark.long),
        pytest.param("read_ahead.py", None, marks=pytest.mark.long),
        pytest.param("accumulate.py", None, marks=pytest.mark.long),
    ],
)
def test_the_same_losses_to_the_bit(tmp_path, name, change):
    bare = launch(TRAINERS / name, bare_env(**SLOW, PYTHONPATH=str(TRAINERS)))
    engine, output = FakeEngine(_made(tmp_path / "run") / "s"), tmp_path / "out"
    env = probe_env(tmp_path / "run", **{**SLOW, "EPOCHS": "100000"})
    with output.open("w") as file:  # a pipe would be full before anybody reads it
        process = subprocess.Popen([sys.executable, str(TRAINERS / name)], env=env, stdout=file, stderr=file)
    try:
        scene(engine, process, change)
        while max(m["step"] for m in engine.of("tick")) < 100 and process.poll() is None:
            time.sleep(0.1)
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    out, (expected, _) = output.read_text(), finish(bare)
    steps = losses(expected)
    assert len(steps) > 50 and losses(out)[: len(steps)] == steps


HANDLES = """
    import signal, sys, time
    sys.path.insert(0, %r)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    import torch
    from torch.utils.data import DataLoader
    from toy import Numbers, mlp, seed
    seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        for x, y in DataLoader(Numbers(), batch_size=8, num_workers=%d):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if stop:
                print("saved", flush=True)
                sys.exit(7)
            time.sleep(0.005)
"""


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_a_handler_that_only_notes_the_signal_is_heard_at_once(tmp_path, workers):
    path = script(tmp_path / "code", HANDLES % (str(TRAINERS), workers))
    engine, process = started(path, tmp_path / "run")
    try:
        engine.wait("tick")
        engine.wait("epoch")
        pause(engine, "p")
        assert stands_still(engine)
        process.send_signal(signal.SIGTERM)
        out, err = finish(process)
    finally:
        process.kill()
    assert (process.returncode, out) == (7, "saved\n"), err
    assert "SIGTERM" in engine.of("pause", id="p", state="over")[0]["reason"]


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)])
def test_the_plain_signals_end_it_at_once(tmp_path, number, status):
    engine, process = started("plain.py", tmp_path / "run", EPOCHS="1000")
    try:
        engine.wait("block")
        pause(engine, "p")
        began = time.monotonic()
        process.send_signal(number)
        _, err = finish(process)
    finally:
        process.kill()
    assert process.returncode == status, err
    assert time.monotonic() - began < 20
    assert number != signal.SIGINT or "KeyboardInterrupt" in err


FORKS = """
    import os, sys, threading, time
    sys.path.insert(0, %r)
    import torch
    from torch.utils.data import DataLoader
    from toy import Numbers, mlp, seed
    seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    def others():
        while True:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            print("forked", flush=True)
            time.sleep(0.1)
    threading.Thread(target=others, daemon=True).start()
    while True:
        for x, y in DataLoader(Numbers(), batch_size=8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(0.005)
"""


@pytest.mark.long
def test_other_threads_go_on_and_fork_and_it_hears_all_the_same(tmp_path):
    path = script(tmp_path / "code", FORKS % str(TRAINERS))
    engine, process = started(path, tmp_path / "run")
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True)
    reader.start()
    try:
        engine.wait("block")
        pause(engine, "p")
        before, until = len(lines), time.monotonic() + 60
        while len(lines) < before + 5 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(lines) >= before + 5, "its other thread stands still"
        resume(engine, "p")
        pause(engine, "q")
        resume(engine, "q")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.long
def test_without_an_engine_it_goes_on_by_itself_and_says_so_to_the_next(tmp_path):
    engine, process = started("plain.py", tmp_path / "run", EPOCHS="1000")
    try:
        engine.wait("block")
        step = pause(engine, "p")["step"]
        engine.close()
        time.sleep(12)
        later = FakeEngine(tmp_path / "run" / "s")
        told = later.wait("pause", id="p", state="over")
        assert "engine was gone" in told["reason"] and told["step"] == step
        later.wait("block")
    finally:
        process.kill()
        finish(process)

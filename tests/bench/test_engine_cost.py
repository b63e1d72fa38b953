"""How quick a start and an attach are, and what an engine costs while it runs. Printed, never gating."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cockpit.engine.launch import PACKAGE, environment
from cockpit.engine.processes import boot_id, read_pids
from cockpit.engine.record import Record
from cockpit.engine.rundir import RunDir, new_rundir, safe_sockets, write_json
from cockpit.engine.start import Spec, ensure_engine, start_run
from cockpit.history.journal import Journal
from cockpit.history.state import State
from cockpit.model.events import BlockMeasured, ProcessStarted, RunStarted, Sampled

pytestmark = pytest.mark.bench
STEPS = 100_000


def watch(run: RunDir) -> dict[str, object]:
    """Connect and take the snapshot, as a screen does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(run.socket))
        client.sendall(b'{"m":"watch"}\n')
        with client.makefile("rb") as file:
            return json.loads(file.readline())


def ask(run: RunDir, verb: str, **args: object) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(run.socket))
        client.sendall(json.dumps({"m": "do", "n": 1, "verb": verb, "args": args}).encode() + b"\n")
        client.recv(65536)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_start(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    took = []
    for _ in range(7):
        began = time.perf_counter()
        run = start_run(Spec([sys.executable, "-c", "pass"], is_script=False, state_dir=state_dir))
        took.append(1000 * (time.perf_counter() - began))
        assert read_pids(run) is not None
    with capsys.disabled():
        print(f"\nstart of a run: {sorted(took)[3]:.0f} ms (median of 7; {min(took):.0f} to {max(took):.0f})")


def test_attach_after_a_hundred_thousand_steps(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run's engine is gone as well: the worst case, a new one folds the journal first."""
    run = new_rundir("x", "long", state_dir / "runs", safe_sockets())
    env = environment(os.environ, run.data, run.socket)
    training = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env)
    try:
        write_json(run.facts_file, {"started_s": time.time(), "boot": boot_id(), "run": "long"})
        write_json(run.pids, {"keeper": training.pid, "training": training.pid})
        record = Record(State(), Journal(run.data, State()))
        record.happen(RunStarted(time.time(), "long", ("python",), "/", "train.py", {}))
        record.happen(ProcessStarted(time.time(), training.pid))
        for step in range(10, STEPS + 1, 10):
            at_s = time.time() - (STEPS - step) / 20
            parts = dict.fromkeys(("wait_s", "start_s", "forward_s", "backward_s", "optimizer_s", "wall_s"), 0.0817)
            record.happen(Sampled(at_s, 0.5, step, steps=10, samples=320, **parts, cores_busy=(0.5,) * 8))
            record.happen(BlockMeasured(at_s, step, 10, 320, 0.5, 0.1, 0.0, 0.1, 0.2, 0.05, step // 5000))
        record.journal.close()
        began = time.perf_counter()
        assert ensure_engine(run)
        new_engine = time.perf_counter() - began
        began = time.perf_counter()
        snapshot = watch(run)
        again = time.perf_counter() - began
        assert snapshot["state"]["step"] == STEPS  # type: ignore[index]
    finally:
        training.kill()
        training.wait()
    with capsys.disabled():
        whole = 1000 * (new_engine + again)
        print(f"\nattach after {STEPS} steps: {1000 * again:.0f} ms, with a new engine {whole:.0f} ms")


def test_engine_at_work(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "cockpit.engine.scripted", "--epochs", "1", "--steps", "100000", "--load-ms", "9"]
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    run = start_run(Spec(command, is_script=False, state_dir=state_dir, environ=environ))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(run.socket))
        client.sendall(b'{"m":"watch"}\n')
        engine = int.from_bytes(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
        until = time.monotonic() + 3
        got = 0
        while time.monotonic() < until:
            client.recv(65536)
        began, before = time.monotonic(), cpu_s(engine)
        while time.monotonic() - began < 20:
            got += len(client.recv(65536))
        spent = (cpu_s(engine) - before) / (time.monotonic() - began)
        resident = int(Path(f"/proc/{engine}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    ask(run, "stop", force=True)
    with capsys.disabled():
        print(f"\nengine: {100 * spent:.1f} % of a core, {resident:.0f} MiB, {got / 20 / 1000:.1f} kB/s to each client")

"""A hot restart beside a cold start of the same script: to the first line, to the first step. Printed, never gating."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.bare import clean_env, command_of
from support.outcome import REPO, TRAINERS
from support.under import ask, detached, status, wait_until

pytestmark = pytest.mark.bench
SCRIPT = """
import time, os, sys
import torch
print("LINE", time.time(), flush=True)
{imports}
import cockpit
sys.path.insert(0, {trainers!r})
from toy import Numbers
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = cockpit.session(model=model, optimizer=optimizer)
loader = torch.utils.data.DataLoader(Numbers(64), batch_size=8, shuffle=True)
first = True
for epoch in run.epochs(100000):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if first:
            print("STEP", time.time(), flush=True)
            first = False
        time.sleep(0.005)
"""
SMALL = "torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))"
LARGE = "torch.nn.Sequential(torch.nn.Linear(8, 4000), torch.nn.Linear(4000, 4000), torch.nn.Linear(4000, 1))"
SCRIPTS = {
    "small": ("", SMALL),
    "with numpy and torch.fx": ("import numpy, torch.fx", SMALL),
    "16 M parameters": ("", LARGE),
}


def end_of(pid: int) -> float:
    """When the process ends: nothing of the next one's script begins before that."""
    handle = os.pidfd_open(pid)
    select.select([handle], [], [])
    os.close(handle)
    return time.time()


def times(text: str, word: str) -> list[float]:
    return [float(found) for found in re.findall(rf"^{word} (\S+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_restart(name: str, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imports, model = SCRIPTS[name]
    script = state_dir / "train.py"
    script.write_text(SCRIPT.format(imports=imports, model=model, trainers=str(TRAINERS)))
    began = time.time()
    env = {**clean_env(), "PYTHONPATH": str(REPO)}
    cold = subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True)
    assert cold.stdout is not None
    lines = [cold.stdout.readline(), cold.stdout.readline()]
    cold.kill()
    cold.wait()
    cold_line, cold_step = (float(line.split()[1]) - began for line in lines)
    with ThreadPoolExecutor(1) as pool, detached(command_of(script), state_dir, env={"PYTHONPATH": str(REPO)}) as data:
        wait_until(lambda: (status(state_dir)["step"] or 0) > 50, "steps", 250)
        gone = pool.submit(end_of, json.loads((data / "pids.json").read_text())["training"])
        asked = time.time()
        assert ask(state_dir, "restart", "--env", "MINE=7").returncode == 0
        log = data / "output.log"
        wait_until(lambda: len(times(log.read_text(), "STEP")) > 1, "the new process", 250, every_s=0.01)
        go = json.loads((data / "life-2" / "go").read_text())
        ready = json.loads((data / "life-2" / "ready.json").read_text())
        readied = os.stat(data / "life-2" / "ready.json").st_mtime
        line, step = times(log.read_text(), "LINE")[1], times(log.read_text(), "STEP")[1]
        ends = gone.result() - go["at_s"]
    own = (ready["private_dirty_kb"] + ready["private_clean_kb"]) / 1024
    with capsys.disabled():
        print(
            f"\n{name}: cold start {cold_line:.2f} s to the first line, {cold_step:.2f} s to the first step; "
            f"hot: handed over, then {line - go['at_s']:.2f} s and {step - go['at_s']:.2f} s, "
            f"{ends:.2f} s of them the end of the old process "
            f"(asked {go['at_s'] - asked:.2f} s before; ready after {readied - asked:.2f} s, while it trained on); "
            f"the waiting process holds {own:.0f} MB of its own, {ready['pss_kb'] / 1024:.0f} MB of all it shares"
        )

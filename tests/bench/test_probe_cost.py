"""What the probe costs: microseconds a step beside the bare training, milliseconds at import. Printed, not gated."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probe"))

from fake_engine import bare_env, probe_env
from watched import keep_torch

from cockpit.model.names import ENV_RUN
from cockpit.probe import install as installing
from cockpit.probe.probe import Probe

pytestmark = pytest.mark.bench
ROUNDS, STEPS = 40, 60


def test_overhead_of_a_step(tmp_path, monkeypatch):
    """Blocks with and without the patches in turns, in one process, so that both see the same machine."""
    keep_torch(monkeypatch)
    torch.set_num_threads(1)
    module = sys.modules["torch.utils.data.dataloader"]
    places = [
        (module.DataLoader, "__iter__"), (module._BaseDataLoaderIter, "__next__"),
        (module._BaseDataLoaderIter, "_next_index"), (torch.autograd, "backward"),
    ]  # fmt: skip
    bare = [getattr(owner, name) for owner, name in places]
    optim = sys.modules["torch.optim.optimizer"]
    hooks = (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(STEPS * 32, 64), batch_size=32)

    def block() -> float:
        began = time.perf_counter()
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        return (time.perf_counter() - began) / STEPS * 1e6

    probe = Probe(torch, environ={ENV_RUN: str(tmp_path)})
    probe.pulse.wanted = False
    installing.patch(probe)
    block()
    watched = [getattr(owner, name) for owner, name in places]
    registered = [dict(hook) for hook in hooks]
    slot = model.__dict__["_compiled_call_impl"]
    times: dict[str, list[float]] = {"bare": [], "watched": []}
    for number in range(ROUNDS):
        for which in ("bare", "watched") if number % 2 else ("watched", "bare"):
            for (owner, name), value in zip(places, bare if which == "bare" else watched, strict=True):
                setattr(owner, name, value)
            for hook, kept in zip(hooks, registered, strict=True):
                hook.clear()
                hook.update(kept if which == "watched" else {})
            model.__dict__["_compiled_call_impl"] = slot if which == "watched" else None
            times[which].append(block())
            probe.recorder.done.clear()
    plain, with_probe = statistics.median(times["bare"]), statistics.median(times["watched"])
    differences = [b - a for a, b in zip(times["bare"], times["watched"], strict=True)]
    print(f"\nstep bare {plain:.0f} µs, watched {with_probe:.0f} µs; in pairs +{statistics.median(differences):.1f} µs")
    assert not probe.guard.reasons
    assert probe.recorder.steps >= ROUNDS * STEPS


@pytest.mark.parametrize("code", ["pass", "import torch"])
def test_cost_of_the_start(tmp_path, code):
    (tmp_path / "run").mkdir()
    environments = {"bare": bare_env(), "watched": probe_env(tmp_path / "run", {})}
    times: dict[str, list[float]] = {name: [] for name in environments}
    for _ in range(15 if code == "pass" else 5):
        for name, env in environments.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
            times[name].append((time.perf_counter() - began) * 1e3)
    shown = {
        name: f"median {statistics.median(values):.0f} ms, best {min(values):.0f} ms" for name, values in times.items()
    }
    print(f"\n{code}: bare {shown['bare']}; watched {shown['watched']}")
    assert len(times["watched"]) == len(times["bare"])

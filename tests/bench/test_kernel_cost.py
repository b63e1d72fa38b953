"""What the model knobs cost: finding the roots, autocast per call, a compile switch, a new batch size. Printed only."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probe"))

from kernels_harness import control
from watched import keep_torch

from cockpit.model.names import ENV_RUN
from cockpit.probe import install as installing
from cockpit.probe.probe import Probe

pytestmark = pytest.mark.bench


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch: Any) -> Iterator[None]:
    kind, threads = torch.amp.autocast_mode.autocast, torch.get_num_threads()
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextlib.contextmanager
def watching(folder: Path, monkeypatch: Any) -> Iterator[Probe]:
    """The probe in this process, with the real clock and no thread."""
    keep_torch(monkeypatch)
    probe = Probe(torch, environ={ENV_RUN: str(folder)})
    probe.pulse.wanted = False
    probe.link.say = lambda message: None  # type: ignore[method-assign]
    installing.patch(probe)
    yield probe
    assert not probe.guard.reasons


def microseconds(work: Callable[[], Any], times: int = 400, rounds: int = 15) -> float:
    """The best of some rounds: what it costs where nobody else uses the CPU."""
    best = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(times):
            work()
        best.append((time.perf_counter() - began) / times * 1e6)
    return min(best)


def deep(blocks: int) -> nn.Module:
    """``blocks`` blocks of 5 modules."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(blocks))
    )


def tell(capsys: Any, words: str) -> None:
    with capsys.disabled():
        print("\n" + words, end="")


@pytest.mark.parametrize("blocks", [2, 40, 400])
def test_finding_the_roots(tmp_path: Path, monkeypatch: Any, capsys: Any, blocks: int) -> None:
    """A forward while the search is on, against one before; and what ends the search after the first step."""
    model, x = deep(blocks), torch.zeros(4, 8)
    times = max(4, 400 // blocks)
    bare = microseconds(lambda: model(x), times)
    with watching(tmp_path, monkeypatch) as probe:
        probe.recorder.thread = probe.recorder.ident()
        probe.recorder.backwards = 1  # so that the search has no end by itself
        searched = microseconds(lambda: model(x), times)
        assert probe.roots.searching
        began = time.perf_counter()
        probe.roots.settle()
        settled = (time.perf_counter() - began) * 1e6
        assert len(probe.kernels.roots) == 1
        slotted = microseconds(lambda: model(x), times)
    modules = sum(1 for _ in model.modules())
    tell(
        capsys,
        f"{modules} modules: forward {bare:.0f} µs bare, {searched - bare:+.1f} µs while searching (one step),"
        f" {slotted - bare:+.1f} µs with its slot; the search's end {settled:.0f} µs",
    )


def test_autocast_of_a_call(capsys: Any) -> None:
    """The knob's own cost a forward, beside a region that the script itself would write."""
    model, x = nn.Identity(), torch.zeros(4, 8)

    def own() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    bare, region = microseconds(lambda: model(x), 2000), microseconds(own, 2000)
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    found = microseconds(lambda: model(x), 2000)
    model, x = deep(2), torch.zeros(4, 8)
    plain = microseconds(lambda: model(x))
    kernels = control(model)
    kernels.land({"autocast": "bf16"})
    cast = microseconds(lambda: model(x))
    tell(
        capsys,
        f"a call: {bare:.2f} µs bare, {region - bare:+.1f} µs in the script's own region, {found - bare:+.1f} µs under"
        f" the knob; 11 modules {plain:.0f} µs in float32, {cast:.0f} µs in bf16 (casts and all)",
    )
    assert kernels.roots[0].seen == "bf16"


def test_compile_switch(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """The first step under compile: with nothing in the caches, with inductor's files, and turned on once more."""
    import torch._dynamo
    import torch._inductor.codecache as codecache

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    model, x = deep(4), torch.zeros(16, 8)

    def step() -> float:
        began = time.perf_counter()
        model(x).sum().backward()
        return time.perf_counter() - began

    plain = min(step() for _ in range(20)) * 1e3
    first: dict[str, float] = {}
    for cache in ("cold", "warm"):
        torch._dynamo.reset()
        codecache.PyCodeCache.cache_clear()
        kernels = control(model)
        began = time.perf_counter()
        kernels.land({"compile": "default"})
        landed = time.perf_counter() - began
        first[cache] = landed + step()
    for _ in range(3):
        kernels.land({"compile": "script"})
        step()
        began = time.perf_counter()
        kernels.land({"compile": "default"})
        first["again"] = time.perf_counter() - began + step()
    compiled = min(step() for _ in range(20)) * 1e3
    tell(
        capsys,
        f"compile on: {first['cold']:.1f} s cold (imports and all), {first['warm']:.1f} s with inductor's files,"
        f" {first['again'] * 1e3:.1f} ms when turned on again; a step {plain:.2f} ms, compiled {compiled:.2f} ms",
    )
    assert kernels.watch.total_ns > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_new_batch_size(tmp_path: Path, monkeypatch: Any, capsys: Any, workers: int) -> None:
    """Begin of an epoch with a new size, in turns with one without."""
    loader = DataLoader(torch.randn(512, 4), batch_size=32, num_workers=workers)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times: dict[str, list[float]] = {"as it was": [], "another size": []}
    with watching(tmp_path, monkeypatch) as probe:
        for number in range(24):
            if number % 2:
                size = 64 if number % 4 == 1 else 32
                probe.asks.receive({"m": "ask", "id": f"c{number}", "knobs": {"batch_size": size}, "now": False})
            began = time.perf_counter()
            batches = iter(loader)
            took = (time.perf_counter() - began) * 1e3
            if number > 3:
                times["another size" if number % 2 else "as it was"].append(took)
            for batch in batches:
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
            probe.beat()
        states = [ask.state for ask in probe.asks.by_id.values()]
    assert set(states) == {"settling"} or states.count("refused") == 0, states
    plain, changed = (statistics.median(times[name]) for name in times)
    tell(capsys, f"{workers} workers: an epoch begins in {plain:.2f} ms, with another batch size in {changed:.2f} ms")

"""What it costs that a kernel change can be taken back: the copy, what is put back, and each step while it settles."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probe"))

from watched import watched

from cockpit.probe.kernels import snapshot

pytestmark = pytest.mark.bench


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch: Any) -> Iterator[None]:
    kind, threads = torch.amp.autocast_mode.autocast, torch.get_num_threads()
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model_of(width: int, blocks: int) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(blocks)))


def trained(model: nn.Module, width: int) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, width)).square().mean().backward()
    optimizer.step()
    return optimizer


def best_of(work: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def tell(capsys: Any, words: str) -> None:
    with capsys.disabled():
        print("\n" + words, end="")


@pytest.mark.parametrize(("width", "blocks"), [(64, 8), (1024, 24)], ids=["small", "100-MB"])
def test_snapshot(capsys: Any, width: int, blocks: int) -> None:
    """Parameters, and the two moments of Adam. What landing reckons with must not promise too much."""
    model = model_of(width, blocks)
    optimizer = trained(model, width)
    size = sum(snapshot.sizes(torch, snapshot.trained([model], [optimizer]), [optimizer]).values())
    cpu = torch.device("cpu")
    where = snapshot.Room({cpu: cpu})
    taken: list[snapshot.Snapshot] = []

    def take() -> None:
        taken[:] = [snapshot.Snapshot(torch, [model], [optimizer], where)]

    first = best_of(take, 1)
    again = best_of(take, 5)
    back = best_of(taken[0].put_back, 5)
    looked = best_of(lambda: snapshot.scalers(torch), 5)
    reckoned = size / snapshot.BYTES_PER_S["cpu", "cpu"]
    tell(
        capsys,
        f"{size / 1e6:.1f} MB of state: copied in {first * 1e3:.0f} ms ({size / first / 1e6:.0f} MB/s),"
        f" again {again * 1e3:.0f} ms, put back in {back * 1e3:.0f} ms ({size / back / 1e6:.0f} MB/s); reckoned"
        f" {reckoned * 1e3:.0f} ms; of it {looked * 1e3:.0f} ms look for scalers among all objects",
    )
    assert size > 0


@pytest.mark.parametrize("width", [64, 1024])
def test_a_step_while_it_settles(tmp_path: Path, monkeypatch: Any, capsys: Any, width: int) -> None:
    """Steps in turns while a change settles and once it is kept: under the same setting, with and without a look."""
    with watched(tmp_path, monkeypatch) as it:
        model, x = model_of(width, 8), torch.randn(16, width)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

        def steps(count: int) -> list[float]:
            found = []
            for _ in range(count):
                began = time.perf_counter()
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                found.append((time.perf_counter() - began) * 1e6)
            return found

        times: dict[str, list[float]] = {"kept": [], "settling": []}
        steps(20)
        for number in range(6):
            it.ask(f"c{number}", now=True, matmul=("high", "medium")[number % 2])
            steps(5)
            it.beat()
            assert it.recorder.trial is not None
            times["settling"] += steps(100)
            it.probe.landing.trials.hear({"m": "kept", "id": f"c{number}"})
            steps(5)
            assert it.recorder.trial is None
            times["kept"] += steps(100)
        torch.set_float32_matmul_precision("highest")
    kept, settling = (statistics.median(times[name]) for name in times)
    tell(capsys, f"width {width}: a step {kept:.0f} µs, while its change settles {settling - kept:+.0f} µs")

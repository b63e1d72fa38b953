"""Every model knob on and off on every way of training in tests/trainers/ways.py, through the whole probe.

Ten times on each in the long lane, twice on one of each kind in the default lane.

The schedule is the one that ``--at step:N`` makes. What is in force is taken from what the training's own forward
noticed, step by step; files and copies made meanwhile are loaded by a plain process that has never heard of us.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from kernels_shapes import CASES, ROUNDS, Case, PlainProcess, schedule_of, seen, steps_of
from watched import Clock, watched

from cockpit.probe import install as installing

import model_shapes  # isort: skip
import ways  # isort: skip

FEW = (
    "Plain-bf16", "OwnAutocast-off", "Scaled-fp16", "CompiledModule-bf16", "CompiledInPlace-bf16-off",
    "CompiledStep-bf16", "InBackward-bf16", "Lbfgs-bf16", "CheckpointedCall-bf16", "Average-bf16", "OwnState-bf16",
    "Parallel-bf16", "Outputs-bf16", "Method-bf16",
)  # fmt: skip
FEW_UNTOUCHED = (ways.CompiledModule, ways.CompiledOptimizer, ways.CompiledStep, ways.Average, ways.OwnState)


class Run(NamedTuple):
    facts: list[tuple[Any, ...]]
    after: dict[str, Any]
    counters: dict[str, Any]
    compiled: list[str]
    changes: dict[str, list[dict[str, Any]]] | None = None


def trained(case: Case, folder: Path, rounds: int = ROUNDS) -> Run:
    folder.mkdir()
    torch._dynamo.reset()
    counters, compiled = torch._dynamo.utils.counters, []
    counters.clear()
    heard, told = torch._dynamo.callback.callback_handler, lambda told: compiled.append(str(told.compile_id))
    heard.register_start_callback(told)
    facts, after = model_shapes.train(case.way, steps_of(rounds), folder)
    heard.remove_start_callback(told)
    return Run(facts, after, {"frames": dict(counters["frames"]), "stats": dict(counters["stats"])}, compiled)


def trained_under(
    case: Case, folder: Path, monkeypatch: Any, schedule: list[tuple[int, dict[str, Any]]], rounds: int = ROUNDS
) -> Run:
    """The same in a process that the probe is in."""
    with watched(folder.parent, monkeypatch) as it:
        installing._unseen_by_dynamo(torch, [Clock.__call__.__code__])  # a real clock has no frame
        entries = [
            {"id": f"at{n}", "when": "step", "n": step, "knobs": knobs} for n, (step, knobs) in enumerate(schedule)
        ]
        it.probe.asks.start({"at": entries})
        run = trained(case, folder, rounds)
        changes: dict[str, list[dict[str, Any]]] = {}
        for message in it.of("change"):
            changes.setdefault(message["id"], []).append(message)
    return run._replace(changes=changes)


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch: Any) -> Iterator[None]:
    import torch._dynamo

    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    handler = torch._dynamo.callback.callback_handler
    before = list(handler.start_callbacks), list(handler.end_callbacks)
    yield
    handler.start_callbacks[:], handler.end_callbacks[:] = before
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.fixture(scope="module")
def plain_process() -> Iterator[PlainProcess]:
    process = PlainProcess()
    yield process
    process.close()


def quick(monkeypatch: Any, standing_in: str) -> None:
    """Our own compilation runs the graph as Dynamo captured it: everything but the generated code."""
    original = torch.compile

    def compile_(function: Any = None, *, mode: Any = None, backend: Any = standing_in, **more: Any) -> Any:
        return original(function, backend=backend, **more)

    monkeypatch.setattr(torch, "compile", compile_)


def few(values: Any, chosen: Any) -> list[Any]:
    """One of each kind; the others are volume."""
    return [
        pytest.param(value, id=name, marks=() if chosen(value, name) else pytest.mark.long)
        for value in values
        for name in [getattr(value, "name", getattr(value, "__name__", ""))]
    ]


def rounds() -> Iterator[Any]:
    for case in CASES:
        yield pytest.param(case, ROUNDS, id=f"{case.name}-{ROUNDS}", marks=pytest.mark.long)
        if case.name in FEW:
            yield pytest.param(case, 2, id=f"{case.name}-2")


@pytest.mark.parametrize(("case", "rounds"), list(rounds()))
def test_on_and_off(case: Case, rounds: int, tmp_path: Path, monkeypatch: Any, plain_process: PlainProcess) -> None:
    """In force when said, near the bare run meanwhile, the bare run to the bit after it, and clean files."""
    quick(monkeypatch, case.backend)
    bare = trained(case, tmp_path / "bare", rounds)
    schedule = schedule_of(case, rounds)
    run = trained_under(case, tmp_path / "under", monkeypatch, schedule, rounds)
    changes = run.changes or {}
    asked = dict(schedule)
    for step, (ours, theirs) in enumerate(zip(run.facts, bare.facts, strict=True)):
        assert ours[1:5] == seen(case, theirs, asked.get(step, {})), (step, asked.get(step))
        assert ours[0] == pytest.approx(theirs[0], rel=case.rel, abs=0.05 if case.rel < 1 else 0.5), step
        assert case.rel >= 1 or ours[5:] == pytest.approx(theirs[5:], rel=2 * case.rel, abs=0.3), ("evaluated", step)
    for number, (_, knobs) in enumerate(schedule):
        said = [(message["state"], message["reason"]) for message in changes[f"at{number}"]]
        if case.refuses(knobs):
            assert [state for state, _ in said] == ["refused"] and case.refused in said[0][1]
            continue
        reason = said[-1][1] if set(knobs) == {"matmul"} and "no effect" in (said[-1][1] or "") else None  # this CPU's
        assert said == [("applying", None), ("settling", reason)], (knobs, said)
        if "script" not in knobs.values():
            assert changes[f"at{number}"][-1]["in_force"] == knobs
    for what in ("again", "weights", "keys", "generator"):
        assert run.after[what] == bare.after[what], what
    loaded = plain_process.load(tmp_path / "under")
    assert len(loaded) == steps_of(rounds) // model_shapes.SAVE_EVERY
    for name, (saved, by_state) in loaded.items():
        assert saved == by_state == run.after["copies"][int(name.rpartition("-")[2])]


@pytest.mark.parametrize("way", few(ways.WAYS, lambda way, name: way in FEW_UNTOUCHED))
def test_untouched(way: type, tmp_path: Path, monkeypatch: Any) -> None:
    """Losses, weights, generators, and what Dynamo compiled how often, are those of the bare script, to the bit."""
    case = Case(way)
    bare = trained(case, tmp_path / "bare")
    assert trained_under(case, tmp_path / "under", monkeypatch, []) == bare._replace(changes={})

"""Model knobs on and off ten times on unmodified trainings in processes of their own, with the real inductor. Volume.

First the ways of training in tests/trainers/ways.py, which notice what runs; then the trainings that the loader knobs
are tried on, which must end as they do bare: every sample once, the same names in the file, the generators in place.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shapes import SHAPES, Shape
from support.bare import command_of, run_bare
from support.outcome import TRAINERS, Outcome
from support.pool import Job, Pool
from support.under import run_under

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probe"))

from kernels_shapes import CASES, STEPS, Case, PlainProcess, schedule_of, seen

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SCRIPT = TRAINERS / "model_shapes.py"
FIRST, ROUNDS = 3, 10
LONGER = {"EPOCHS": "4"}
TURNED = tuple(shape for shape in SHAPES if shape.change and not shape.refusal and shape.steps)
TOGETHER = {
    "setters and autocast": ("autocast=bf16", "threads=2", "matmul=high"),
    "compile": ("compile=default",),
}


@pytest.fixture(scope="module")
def plain_process() -> Iterator[PlainProcess]:
    process = PlainProcess()
    yield process
    process.close()


def trained(outcome: Outcome) -> dict[str, Any]:
    """What the script printed at its end."""
    found: dict[str, Any] = json.loads(outcome.text.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_and_off_ten_times(case: Case, state_dir: Path, plain_process: PlainProcess) -> None:
    command = command_of(SCRIPT, ("train", case.way.__name__, str(STEPS)))
    (state_dir / "files").mkdir()
    (state_dir / "bare").mkdir()
    schedule = schedule_of(case)
    options = [
        word
        for step, knobs in schedule
        for name, value in knobs.items()
        for word in ("--at", f"step:{step}", f"{name}={value}")
    ]
    under = run_under([*command, str(state_dir / "files")], state_dir, options, timeout_s=600)
    bare = run_bare([*command, str(state_dir / "bare")], state_dir, timeout_s=300)
    assert (under.status, bare.status) == (0, 0), under.text[-2000:] + under.talk
    ours, theirs, asked = trained(under), trained(bare), dict(schedule)
    for step, (mine, plain) in enumerate(zip(ours["facts"], theirs["facts"], strict=True)):
        assert tuple(mine[1:5]) == seen(case, plain, asked.get(step, {})), (step, asked.get(step))
        # a line search, and other masks of dropout, lead elsewhere: there only that it trains on
        assert mine[0] == pytest.approx(plain[0], rel=case.rel, abs=0.05 if case.rel < 1 else 0.5), step
    for what in ("again", "weights", "keys", "generator"):
        assert ours["after"][what] == theirs["after"][what], what
    for name, (saved, by_state) in plain_process.load(state_dir / "files").items():
        assert saved == by_state == ours["after"]["copies"][name.rpartition("-")[2]]
    assert not case.refused or case.refused in under.talk


def options_of(knobs: tuple[str, ...]) -> tuple[str, ...]:
    words: list[str] = []
    for number in range(ROUNDS):
        back = tuple(knob.partition("=")[0] + "=script" for knob in knobs)
        for step, asked in ((FIRST + 2 * number, knobs), (FIRST + 2 * number + 1, back)):
            words += [word for knob in asked for word in ("--at", f"step:{step}", knob)]
    return tuple(words)


def job_of(shape: Shape, knobs: tuple[str, ...] | None) -> Job:
    env = tuple(sorted({**shape.env, **LONGER}.items()))
    return Job(shape.trainer, None if knobs is None else options_of(knobs), env, shape.args)


def needs(test: Any) -> Any:
    test.needs = lambda shape, knobs: [job_of(shape, knobs), job_of(shape, None)]
    return test


@pytest.mark.parametrize("knobs", TOGETHER.values(), ids=list(TOGETHER))
@pytest.mark.parametrize("shape", TURNED, ids=lambda shape: shape.trainer)
@needs
def test_trainings_of_the_loader_knobs(pool: Pool, shape: Shape, knobs: tuple[str, ...]) -> None:
    under, bare = pool.result(job_of(shape, knobs)), pool.result(job_of(shape, None))
    assert under.status == bare.status == shape.status, under.text[-2000:]
    ours, theirs = under.final, bare.final
    assert ours is not None and theirs is not None
    for what in ("samples", "keys", "random", "numpy", *(("torch",) if "compile=default" not in knobs else ())):
        assert ours[what] == theirs[what], what
    lost, kept = (numbers(outcome) for outcome in (under, bare))
    assert lost[:2] == kept[:2]
    draws = re.search(r"[Dd]ropout", (TRAINERS / shape.trainer).read_text())
    if draws and "compile=default" in knobs:  # masks from another stream
        assert sum(lost) == pytest.approx(sum(kept), rel=0.3)
    else:
        assert lost == pytest.approx(kept, rel=0.5, abs=0.3)


def numbers(outcome: Outcome) -> list[float]:
    """Every loss that was printed."""
    return [float(found) for line in outcome.losses for found in re.findall(r"(?:loss|critic) ([-\d.e]+)", line)]

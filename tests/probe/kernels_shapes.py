"""Which knobs are turned on which way of training, when, and what the training's own forward must notice of it.

Read by the test that runs the ways inside its own process and by the one that runs them as a person would.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from support.bare import clean_env
from support.outcome import TRAINERS

sys.path.insert(0, str(TRAINERS))

import ways

ROUNDS = 10
FIRST = 5
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "off": "float32"}


class Case(NamedTuple):
    """``rel``: how far a loss may lie from the bare run's (line searches and other dropout masks lead elsewhere).

    ``on``: what is turned on. ``refused``: words of the reason why autocast and compile are not to be had."""

    way: type
    on: tuple[tuple[str, Any], ...] = (("autocast", "bf16"), ("compile", "default"))
    refused: str = ""
    rel: float = 0.1
    backend: str = "eager"

    @property
    def name(self) -> str:
        return self.way.__name__ + "".join("-%s" % value for _, value in self.on if value != "default")

    def refuses(self, knobs: dict[str, Any]) -> bool:
        """Whether ``knobs`` cannot be had, whole; ``script`` can always."""
        kinds = {name for name, value in knobs.items() if value != "script"}
        return bool(self.refused and kinds & {"autocast", "compile"})


SETTERS = (("threads", 3), ("matmul", "high"))
CASES = (
    *(Case(way) for way in (ways.Plain, ways.Inference, ways.ScaledOff, ways.CompiledOptimizer, ways.InBackward)),
    *(Case(way) for way in (ways.CheckpointedCall, ways.Average, ways.OwnState, ways.OwnReduce)),
    *(Case(way) for way in (ways.OwnCopy, ways.Parallel, ways.Outputs, ways.Method, ways.Forward, ways.Two)),
    Case(ways.Late),
    *(Case(way, backend="aot_eager") for way in (ways.Checkpointed, ways.Reentrant)),  # "eager" computes wrongly again
    Case(ways.Lbfgs, rel=10.0),
    Case(ways.Dropout, rel=3.0),
    Case(ways.OwnAutocast, (("autocast", "off"), ("compile", "default"))),
    Case(ways.OwnAutocastOff),
    Case(ways.Scaled),
    Case(ways.Scaled, (("autocast", "fp16"), ("compile", "default"))),
    Case(ways.CompiledModule),
    Case(ways.CompiledModule, (("autocast", "bf16"), ("compile", "off"))),
    Case(ways.CompiledInPlace),
    Case(ways.CompiledInPlace, (("autocast", "bf16"), ("compile", "off"))),
    Case(ways.CompiledStep, refused="the script compiles the whole step"),
)  # fmt: skip


def steps_of(rounds: int) -> int:
    """How many steps a schedule of so many rounds wants, with one more after it."""
    return FIRST + 2 * rounds * 5 + 1


STEPS = steps_of(ROUNDS)


def schedule_of(case: Case, rounds: int = ROUNDS) -> list[tuple[int, dict[str, Any]]]:
    """(step, knobs): each knob alone, then all at once, ``rounds`` times on for a step and as the script has it."""
    found, step = [], FIRST
    for knobs in (*({name: value} for name, value in (*case.on, *SETTERS)), dict((*case.on, *SETTERS))):
        for _ in range(rounds):
            found += [(step, knobs), (step + 1, {name: "script" for name in knobs})]
            step += 2
    return found


def seen(case: Case, bare: Any, knobs: dict[str, Any]) -> tuple[Any, ...]:
    """What a step under ``knobs`` must notice, where it noticed ``bare`` by itself."""
    if case.refuses(knobs):
        knobs = {}
    _, dtype, compiled, threads, precision = bare[:5]
    compile_ = knobs.get("compile", "script")
    return (
        DTYPES.get(knobs.get("autocast", "script"), dtype),
        compiled if compile_ == "script" else compile_ != "off",
        threads if knobs.get("threads", "script") == "script" else knobs["threads"],
        precision if knobs.get("matmul", "script") == "script" else knobs["matmul"],
    )


class PlainProcess:
    """A process without us that loads, and trains on, what is in a folder."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", str(TRAINERS / "model_shapes.py"), "load"]
        self._process = subprocess.Popen(
            command, env=clean_env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def load(self, folder: Path) -> dict[str, list[list[float]]]:
        """Of each file the losses of the model in it, and of the state beside it in a new model."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        found: dict[str, list[list[float]]] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.communicate(timeout=60)

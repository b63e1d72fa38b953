"""The volume: every shape, larger, with many random changes at random moments, against its bare run. Long tier.

``COCKPIT_SEED`` repeats one schedule (it is printed); ``COCKPIT_ROUNDS`` says how many schedules a shape gets.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from shapes import SHAPES, Shape
from support.outcome import difference
from support.pool import Job, Pool

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SEED = int(os.environ.get("COCKPIT_SEED", "20261130"))
ROUNDS = int(os.environ.get("COCKPIT_ROUNDS", "3"))
EPOCHS, SAMPLES = 6, 240
LARGER = {"EPOCHS": str(EPOCHS), "SAMPLES": str(SAMPLES)}
CHANGED = [replace(shape, env={**shape.env, **LARGER}) for shape in SHAPES if shape.change]
# what a person would turn, and how often; in_order off changes the order of batches and has its own test below
KNOBS = (
    ("num_workers", ("0", "1", "2", "3", "4", "script")),
    ("num_workers", ("0", "1", "2", "3", "4", "script")),
    ("prefetch_factor", ("1", "2", "4", "script")),
    ("persistent_workers", ("on", "off", "script")),
)


def schedule(trainer: str, number: int, knobs: tuple[Any, ...] = KNOBS) -> tuple[str, ...]:
    """Between one and eight changes at random steps and epochs; the same for the same seed."""
    draw = random.Random(f"{SEED} {trainer} {number}")
    words: list[str] = []
    for _ in range(draw.randint(1, 8)):
        name, values = draw.choice(knobs)
        moment = f"epoch:{draw.randrange(EPOCHS)}" if draw.random() < 0.4 else f"step:{draw.randrange(30 * EPOCHS)}"
        words += ["--at", moment, f"{name}={draw.choice(values)}"]
    return tuple(words)


def needs(test: Any) -> Any:
    test.needs = lambda shape, number: [shape.job(None), shape.job(schedule(shape.trainer, number))]
    return test


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("shape", CHANGED, ids=lambda shape: shape.trainer)
@needs
def test_any_schedule_equals_bare(pool: Pool, shape: Shape, number: int) -> None:
    words = schedule(shape.trainer, number)
    print(f"COCKPIT_SEED={SEED}", *words)
    bare, changed = pool.result(shape.job(None)), pool.result(shape.job(words))
    assert changed.status == bare.status == 0, changed.talk + changed.text[-3000:]
    report = changed.report
    assert report is not None
    rolled_back = [entry for entry in report["ledger"] if entry["state"] == "rolled_back"]
    assert not rolled_back or shape.refusal
    if shape.exact:
        assert changed.output == bare.output, difference(changed, bare)
    ours, theirs = changed.final, bare.final
    assert ours is not None and theirs is not None
    assert ours["samples"] == theirs["samples"]
    assert ours.get("each_once") == theirs.get("each_once")
    assert ours.get("repeated_draws", 0) == 0
    check_samples(report, shape)


def check_samples(report: dict[str, Any], shape: Shape) -> None:
    """Each loader that trains is told with what it served in all, whatever happened to it."""
    bare_epochs = len(shape.loaders[0].samples) if shape.loaders else 0
    for loader in report["loaders"]:
        if loader["role"] == "train" and bare_epochs > 1:
            first, *rest = loader["samples_by_epoch"]
            assert all(samples == first for samples in rest[:-1]), loader["samples_by_epoch"]


FREE = replace(next(shape for shape in SHAPES if shape.trainer == "augment.py"), env=LARGER)


@pytest.mark.timeout(3600)  # the pool may have others' runs before it
@pytest.mark.parametrize("number", range(ROUNDS))
def test_each_sample_once_where_the_order_is_free(pool: Pool, number: int) -> None:
    words = schedule("free", number, (*KNOBS, ("in_order", ("off", "on"))))
    print(f"COCKPIT_SEED={SEED}", *words)
    done = pool.result(Job(FREE.trainer, ("--set", "in_order=off", *words), tuple(sorted(FREE.env.items()))))
    final = done.final
    assert final is not None, done.text[-3000:]
    assert final["samples"] == [SAMPLES] * EPOCHS
    assert all(final["each_once"])
    assert final["repeated_draws"] == 0

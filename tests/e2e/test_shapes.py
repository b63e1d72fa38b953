"""Trainings of every shape: under the cockpit each does just what it does bare, is told right, and can be changed.

Three runs a training, shared by the tests: bare, under the cockpit with nothing touched, and with a scripted
change. What a change may alter is nothing at all, except where the script's own randomness lives in its workers.
"""

from __future__ import annotations

from typing import Any

import pytest
from shapes import SHAPES, Loader, Shape
from support.outcome import Outcome, difference
from support.pool import Pool

VOLUME = {
    "accumulate.py", "augment.py", "batch_sampler.py", "closes_fds.py", "fresh_loader.py", "not_picklable.py",
    "own_optimizer.py", "peek_break.py", "rough.py", "shared_generator.py", "spawn_workers.py", "stream_sharded.py",
    "zipped.py",
}  # fmt: skip
"""Changes in these go ways that another row goes, or another test of the default lane: tests/probe does it in less."""

WHOLE = {"multi_epochs.py"}
"""Of these the bare and the untouched run, too."""

EACH = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=shape.trainer, marks=pytest.mark.long if shape.trainer in WHOLE else ())
        for shape in SHAPES
    ],
)
CHANGED = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=shape.trainer, marks=pytest.mark.long if shape.trainer in VOLUME | WHOLE else ())
        for shape in SHAPES
        if shape.change
    ],
)


def needs(*modes: str) -> Any:
    """The runs that a test looks at, so that the pool can begin them before their turn."""

    def mark(test: Any) -> Any:
        test.needs = lambda shape: [shape.job(options_of(shape, mode)) for mode in modes]
        return test

    return mark


def options_of(shape: Shape, mode: str) -> tuple[str, ...] | None:
    return {"bare": None, "untouched": (), "changed": shape.change}[mode]


def run(pool: Pool, shape: Shape, mode: str) -> Outcome:
    return pool.result(shape.job(options_of(shape, mode)))


@EACH
@needs("bare", "untouched")
def test_untouched_equals_bare(pool: Pool, shape: Shape) -> None:
    bare, under = run(pool, shape, "bare"), run(pool, shape, "untouched")
    assert bare.status == shape.status, bare.text[-2000:]
    assert under.status == bare.status, under.talk
    assert under.output == bare.output, difference(under, bare)


@EACH
@needs("untouched")
def test_untouched_is_told_right(pool: Pool, shape: Shape) -> None:
    report = run(pool, shape, "untouched").report
    assert report is not None
    assert (report["state"], report["exit_status"]) == ("ended", shape.status)
    assert report["ledger"] == []
    assert report["events_dropped"] == 0
    assert report["survivors"] == []
    check_loaders(report, shape)


@CHANGED
@needs("bare", "changed")
def test_changed_run_equals_bare(pool: Pool, shape: Shape) -> None:
    bare, changed = run(pool, shape, "bare"), run(pool, shape, "changed")
    assert changed.status == bare.status, changed.talk + changed.text[-2000:]
    if shape.exact:
        assert changed.output == bare.output, difference(changed, bare)
    ours, theirs = changed.final, bare.final
    assert ours is not None and theirs is not None
    assert ours["samples"] == theirs["samples"]
    assert ours.get("each_once") == theirs.get("each_once")
    assert ours.get("repeated_draws", 0) == 0
    assert ours["keys"] == theirs["keys"]


@CHANGED
@needs("changed")
def test_change_is_told_right(pool: Pool, shape: Shape) -> None:
    changed = run(pool, shape, "changed")
    report = changed.report
    assert report is not None
    check_loaders(report, shape)
    ledger = report["ledger"]
    assert len(ledger) == len(shape.landed), ledger
    for entry, landed in zip(ledger, shape.landed, strict=True):
        check_entry(entry, landed, shape)
    if shape.in_force is not None:
        trains = [loader for loader in report["loaders"] if loader["role"] == "train"]
        assert [loader["knobs"]["num_workers"] for loader in trains] == [shape.in_force] * len(trains)


def check_loaders(report: dict[str, Any], shape: Shape) -> None:
    """Each loader of the script is there once, by the line that made it, with its role and the samples it served."""
    found = {loader["id"]: loader for loader in report["loaders"]}
    assert sorted(found) == sorted(shape.line(loader) for loader in shape.loaders)
    for expected in shape.loaders:
        check_loader(found[shape.line(expected)], expected)
    if shape.steps is not None:
        assert report["step"] == shape.steps
        assert report["optimizer_steps"] == shape.optimizer_steps or shape.optimizer_steps is None


def check_loader(loader: dict[str, Any], expected: Loader) -> None:
    assert loader["role"] == expected.role
    if expected.samples:
        assert tuple(loader["samples_by_epoch"]) == expected.samples
        assert loader["epochs"] == len(expected.samples)


def check_entry(entry: dict[str, Any], landed: int | None, shape: Shape) -> None:
    """A change that landed says where and from what to what; one that did not says why."""
    if landed is None:
        assert entry["outcome"] in ("refused", "rolled_back"), entry
        assert shape.refusal in entry["reason"]
        return
    assert entry["state"] in ("settling", "kept"), entry
    assert entry["at_step"] == landed
    for before, after in entry["change"].values():
        assert before != after
        assert after is not None

"""The batch size on unmodified trainings of every shape: every sample once in each epoch, or refused and untouched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from support.outcome import Outcome, difference
from support.pool import Job, Pool

DOUBLE = ("--at", "epoch:1", "batch_size=16")
THERE_AND_BACK = (*DOUBLE, "--at", "epoch:2", "batch_size=script")
WITH_WORKERS = ("--at", "epoch:1", "num_workers=1", *THERE_AND_BACK)


@dataclass(frozen=True)
class Case:
    """``batches``: of each epoch, where it lands. ``refusal``: what the reason says, where it does not.

    ``lines``: how the script's lines of epoch N begin. ``served``: samples that the script itself counts an epoch.
    """

    trainer: str
    options: tuple[str, ...] = THERE_AND_BACK
    batches: tuple[int, ...] = (12, 6, 12)
    refusal: str = ""
    served: tuple[int, ...] = (96, 96, 96)
    lines: str = "epoch {} "

    @property
    def under(self) -> Job:
        return Job(self.trainer, self.options)

    @property
    def bare(self) -> Job:
        return Job(self.trainer)


LANDS = (
    Case("plain.py", WITH_WORKERS),
    pytest.param(Case("plain.py"), marks=pytest.mark.long),
    pytest.param(Case("accumulate.py", batches=(14, 7, 14), served=(112, 112, 112)), marks=pytest.mark.long),
    pytest.param(Case("persistent.py"), marks=pytest.mark.long),
    pytest.param(Case("fresh_loader.py"), marks=pytest.mark.long),
    pytest.param(Case("distributed_sampler.py"), marks=pytest.mark.long),
    pytest.param(Case("shared_generator.py"), marks=pytest.mark.long),
    pytest.param(Case("framework.py"), marks=pytest.mark.long),
    pytest.param(Case("read_ahead.py"), marks=pytest.mark.long),
    pytest.param(Case("gan.py"), marks=pytest.mark.long),
    pytest.param(Case("dropout.py"), marks=pytest.mark.long),
)
REFUSED = (
    Case("validation.py", ("--at", "epoch:1", "batch_size=19"), refusal="batch norm"),
    Case("zipped.py", DOUBLE, refusal="several loaders"),
    pytest.param(Case("batch_sampler.py", DOUBLE, refusal="made the batches itself"), marks=pytest.mark.long),
    pytest.param(Case("stream_unsharded.py", DOUBLE, refusal="iterable"), marks=pytest.mark.long),
    pytest.param(Case("peek_break.py", DOUBLE, refusal="left the last epoch"), marks=pytest.mark.long),
    pytest.param(Case("forever.py", DOUBLE, refusal="ended before"), marks=pytest.mark.long),
    pytest.param(Case("no_loader.py", DOUBLE, refusal="no DataLoader"), marks=pytest.mark.long),
)
COUNTS = Case("counts.py", ("--at", "epoch:1", "batch_size=4"))


def runs_of(test: Any) -> Any:
    """So that the pool can begin the runs before their turn."""
    test.needs = lambda case: [case.under, case.bare]
    return test


def epoch_lines(outcome: Outcome, case: Case, epoch: int) -> list[str]:
    start = case.lines.format(epoch)
    return [line for line in outcome.losses if line.startswith(start)]


@pytest.mark.parametrize("case", LANDS, ids=lambda case: case.trainer)
@runs_of
def test_every_sample_is_served_once_in_batches_of_the_size_asked_for(pool: Pool, case: Case) -> None:
    under, bare = pool.result(case.under), pool.result(case.bare)
    assert under.status == bare.status == 0, under.talk + under.text[-2000:]
    assert tuple(under.final["samples"]) == tuple(bare.final["samples"]) == case.served
    assert tuple(len(epoch_lines(under, case, epoch)) for epoch in range(3)) == case.batches
    assert epoch_lines(under, case, 0) == epoch_lines(bare, case, 0)
    for state in ("torch", "random", "numpy"):
        assert under.final[state] == bare.final[state] or case.trainer == "dropout.py", state
    ledger = [entry for entry in under.report["ledger"] if "batch_size" in entry["change"]]
    assert [entry["change"]["batch_size"] for entry in ledger] == [[8, 16], [16, 8]]
    assert all(entry["state"] in ("settling", "kept") for entry in ledger), ledger
    trains = next(loader for loader in under.report["loaders"] if loader["role"] == "train")
    assert trains["knobs"]["batch_size"] == trains["batch_size"] == 8
    assert tuple(trains["samples_by_epoch"]) == case.served


SOONEST = (
    ("--set", "batch_size=16"),
    ("--at", "epoch:0", "batch_size=16"),
    ("--at", "step:7", "batch_size=16"),
    ("--at", "time:0", "batch_size=16"),
)


@pytest.mark.long
@pytest.mark.parametrize("case", [Case("plain.py", options) for options in SOONEST], ids=lambda case: case.options[1])
@runs_of
def test_however_early_it_is_asked_for_it_lands_when_the_first_epoch_is_over(pool: Pool, case: Case) -> None:
    under, bare = pool.result(case.under), pool.result(case.bare)
    assert tuple(len(epoch_lines(under, case, epoch)) for epoch in range(3)) == (12, 6, 6)
    assert epoch_lines(under, case, 0) == epoch_lines(bare, case, 0)
    row = under.report["knobs"]["batch_size"]
    assert (row["asked"], row["in_force"], row["state"]) in [(16, 16, "kept"), (16, 16, "settling")], row


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.trainer)
@runs_of
def test_where_it_is_refused_the_training_is_the_bare_one(pool: Pool, case: Case) -> None:
    under, bare = pool.result(case.under), pool.result(case.bare)
    assert under.status == 0, under.talk
    assert under.output == bare.output, difference(under, bare)
    (entry,) = under.report["ledger"]
    assert entry["outcome"] == "refused" and case.refusal in entry["reason"], entry


@pytest.mark.parametrize("case", [COUNTS], ids=lambda case: case.trainer)
@runs_of
def test_a_loop_that_counts_its_own_steps_loses_one_epochs_half_and_gets_its_size_back(pool: Pool, case: Case) -> None:
    under, bare = pool.result(case.under), pool.result(case.bare)
    assert under.status == 0 and bare.final["samples"] == [96, 96, 96]
    assert under.final["samples"] == [96, 48, 96], "told at once, and never again"
    (entry,) = under.report["ledger"]
    assert entry["outcome"] == "rolled_back" and entry["change"] == {"batch_size": [8, 4]}
    assert entry["reason"] == "with batches of 4 the loop saw 52 of 96 samples: 44 were not seen"
    assert under.report["knobs"]["batch_size"]["in_force"] == 8


HEAVY = {
    ("killed", "2"): "was killed by SIGKILL",
    ("shm", "2"): "unable to resize file",
    ("memory", "2"): "MemoryError",
    ("memory", "0"): "MemoryError",
}


def heavy(fault: tuple[str, str], options: tuple[str, ...] | None) -> Job:
    return Job("heavy.py", options, (("FAULT", fault[0]), ("WORKERS", fault[1])))


def runs_of_heavy(test: Any) -> Any:
    test.needs = lambda fault: [heavy(fault, DOUBLE), heavy(fault, None)]
    return test


@pytest.mark.long
@pytest.mark.parametrize("fault", HEAVY, ids="-".join)
@runs_of_heavy
def test_what_fails_with_larger_batches_alone_costs_nothing(pool: Pool, fault: tuple[str, str]) -> None:
    under, bare = pool.result(heavy(fault, DOUBLE)), pool.result(heavy(fault, None))
    assert under.status == bare.status == 0, under.talk + under.text[-2000:]
    assert under.output == bare.output, difference(under, bare)
    (entry,) = under.report["ledger"]
    assert entry["outcome"] == "rolled_back" and HEAVY[fault] in entry["reason"], entry
    assert under.report["knobs"]["batch_size"]["in_force"] == 8 and under.report["survivors"] == []

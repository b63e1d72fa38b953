"""How long workers are waited for: what a loader has taken before, many times over, and never less than a minute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from cockpit.model.names import ENV_PATIENCE
from cockpit.probe.patience import LEAST_S, TIMES, Patience, least_s
from cockpit.probe.stuck import StuckWatch


def test_a_slow_loader_is_waited_for_longer() -> None:
    patience = Patience()
    assert not patience.is_over(LEAST_S - 1) and patience.is_over(LEAST_S)
    patience.saw(1.0)
    assert patience.is_over(LEAST_S)
    patience.saw(10.0)
    patience.saw(3.0)
    assert not patience.is_over(10.0 * TIMES - 1) and patience.is_over(10.0 * TIMES)


@pytest.mark.parametrize(
    ("said", "found"), [("2", 2.0), ("0.5", 0.5), ("", None), ("0", None), ("-1", None), ("soon", None)]
)
def test_the_environment_may_say_less(said: str, found: float | None) -> None:
    assert least_s({ENV_PATIENCE: said}) == found


class Worker:
    def __init__(self) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True


def stuck_source(patience: Patience) -> Any:
    class Source(SimpleNamespace):
        __hash__ = object.__hash__

    return Source(polls=1, polling=True, given_up=None, patience=patience, _workers=[Worker(), Worker()], pids=(7, 8))


def test_workers_that_stand_still_within_one_poll_are_ended_once_patience_is_over() -> None:
    watch, source = StuckWatch(), stuck_source(Patience(2.0))
    watch.add(source)
    assert watch.pids() == {7, 8}
    for _ in range(10):
        watch.beat(0.2)
    assert not any(worker.killed for worker in source._workers)
    watch.beat(0.2)
    assert all(worker.killed for worker in source._workers) and "stood still for 2 s" in source.given_up


def test_polls_that_go_on_are_no_standstill_and_neither_is_a_training_that_computes() -> None:
    watch, source = StuckWatch(), stuck_source(Patience(1.0))
    watch.add(source)
    for _ in range(20):
        watch.beat(0.2)
        source.polls += 1
    source.polling = False
    for _ in range(20):
        watch.beat(0.2)
    assert source.given_up is None and not any(worker.killed for worker in source._workers)


def test_a_source_that_is_gone_is_forgotten() -> None:
    watch, source = StuckWatch(), stuck_source(Patience(1.0))
    watch.add(source)
    del source
    assert watch.pids() == set()
    watch.beat(5.0)


class Rows(Dataset):
    def __init__(self, it: Any) -> None:
        self.it = it

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        self.it.spend(9_000.0 if index == 3 else 1.0)
        return torch.ones(2)


def test_what_the_script_itself_had_to_wait_for_counts(it: Any) -> None:
    loader = DataLoader(Rows(it))
    list(loader)
    (record,) = it.probe.registry.records.values()
    assert record.control.patience.longest_s == pytest.approx(9.0, rel=0.01)

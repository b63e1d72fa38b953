"""The probe's thread is gone while a process is forked, and there as soon as that is over: what hangs then is seen."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from watched import Watched, loader_of

from cockpit.probe.pulse import Pulse


@pytest.fixture
def at_forks(it: Watched, monkeypatch: Any) -> Any:
    """Whether the thread was there, at each fork of this process."""
    pulse, found, fork = Pulse(lambda: None, lambda: None), [], os.fork

    def forked() -> int:
        it.probe.before_fork()
        found.append(pulse.running)
        pid = fork()
        if pid == 0:
            it.probe.in_child()
        return pid

    it.probe.pulse = pulse
    monkeypatch.setattr(os, "fork", forked)
    yield found
    pulse.stop()


def test_it_is_there_again_before_the_first_batch_of_an_iterator_whose_workers_were_forked(it, at_forks):
    net, pulse = torch.nn.Linear(2, 1), it.probe.pulse
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        net(batch).sum().backward()
        optimizer.step()

    loader = loader_of(it, 48, num_workers=2)
    first = iter(loader)
    assert not pulse.running, "no step has ended yet"
    for batch in first:
        step(batch)
    batches = iter(loader)
    assert pulse.running, "the first batch may never come"
    step(next(batches))
    assert pulse.running, "nor its step end"
    it.ask("more", now=True, num_workers=3)
    for batch in batches:
        step(batch)
        if len(at_forks) > 4:
            break
    else:
        raise AssertionError("workers of another number were never forked")
    assert pulse.running
    assert at_forks and not any(at_forks)


def test_it_comes_back_only_where_it_was(it):
    pulse = Pulse(lambda: None, lambda: None)
    pulse.resume()
    assert not pulse.running, "it has never begun"
    pulse.start()
    pulse.stop()
    pulse.resume()
    assert pulse.running
    pulse.stop()
    pulse.forget()
    pulse.resume()
    assert not pulse.running, "a forked child begins for itself"
    pulse.start()
    pulse.wanted = False
    pulse.stop()
    pulse.resume()
    assert not pulse.running


def test_what_is_done_once_is_done_once_in_each_process_that_trains():
    done: list[str] = []
    pulse = Pulse(lambda: None, lambda: None)
    pulse.first = lambda: done.append("first")
    for processes in (1, 2):
        for _ in range(2):
            pulse.start()
            pulse.stop(60)
        assert len(done) == processes
        pulse.forget()  # a fork of one that has trained trains itself

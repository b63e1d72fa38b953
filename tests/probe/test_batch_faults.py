"""A batch size under which what loads the batches fails, and nobody could foresee it: it goes back at once.

Workers are the script's own here, or there are none. Each index reaches the loop once and in the sampler's order, at
the script's own size from there on; and then a dying worker is torch's to tell of again, exactly.
"""

from __future__ import annotations

import os
import random
import resource
import signal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe.test_batch_knob import Training, reason, row, states
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from cockpit.probe.cuts import Cuts
from cockpit.probe.feed import Feed
from cockpit.probe.swap import chain_of

OWN, LARGER, COUNT = 4, 8, 43


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def bus_error() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGBUS)


def leave() -> None:
    os._exit(3)


def no_memory() -> None:
    raise MemoryError


def ragged() -> None:
    torch.stack([torch.zeros(2), torch.zeros(3)])


def shared_memory() -> None:
    """What a full /dev/shm answers, if with another number: a file in it cannot grow, and nothing is sent."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))


FAULTS = {
    kill: "was killed by SIGKILL",
    bus_error: "was killed by SIGBUS: likely out of shared memory",
    leave: "exited with status 3",
    no_memory: "MemoryError",
    ragged: "stack expects each tensor to be equal size",
    shared_memory: "the workers have given nothing for",  # what they do say is ``unsent``'s to tell
}
IN_PROCESS = (no_memory, ragged)


class Collate:
    """Fails from the ``nth`` batch on that has more samples than the script ever put into one."""

    def __init__(self, fault, nth: int) -> None:
        self.fault, self.nth, self.seen = fault, nth, 0

    def __call__(self, rows):
        self.seen += len(rows) > OWN
        if len(rows) > OWN and self.seen >= self.nth:
            self.fault()
        return torch.stack(rows)


class Counted(Dataset):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


def loader_of(collate, workers: int, **more) -> DataLoader:
    generator = torch.Generator()
    generator.manual_seed(5)
    loader = DataLoader(
        Counted(), batch_size=OWN, shuffle=True, generator=generator, num_workers=workers, collate_fn=collate, **more
    )
    return loader


def check(it, fault, workers: int, nth: int = 1, **more) -> Training:
    """Epochs 0 and 2 are at the script's size; in epoch 1 a larger one is asked for and fails."""
    it.probe.mechanism.patience_s = 2.0
    bare = loader_of(torch.stack, workers, **more)
    wanted = [[int(index) for batch in bare for index in batch[:, 0]] for _ in range(3)]
    training = Training(it, loader_of(Collate(fault, nth), workers, **more))
    training.epoch()
    it.ask("c1", batch_size=LARGER)
    for _ in range(2):
        training.epoch()
    assert training.seen == wanted
    assert training.sizes[2] == training.sizes[0] and LARGER not in training.sizes[1][nth * max(1, workers) :]
    assert torch.equal(training.loader.generator.get_state(), bare.generator.get_state())
    assert states(it, "c1")[-1] == "rolled_back" and FAULTS[fault] in reason(it, "c1")
    last = it.of("change", id="c1")[-1]
    assert (last["before"], last["in_force"]) == ({"batch_size": OWN}, {"batch_size": OWN})
    assert training.loader.batch_size == training.loader.batch_sampler.batch_size == row(it)["in_force"] == OWN
    assert it.recorder.setting.change is None
    batch = next(iter(it.probe.registry.records.values())).batch
    assert batch.largest == OWN, "whether the model has room for more was not seen"
    assert [epoch["samples"] for epoch in it.of("epoch")] == [len(epoch) for epoch in wanted]
    return training


CASES = [(fault, 2) for fault in FAULTS] + [(fault, 0) for fault in IN_PROCESS]
MORE = ({}, {"drop_last": True}, {"persistent_workers": True}, {"prefetch_factor": 1, "drop_last": True})


@pytest.mark.parametrize("workers", [0, 2])
def test_it_goes_back_and_nothing_is_lost(it, workers):
    check(it, ragged, workers)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", MORE, ids=lambda more: "-".join(more))
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(("fault", "workers"), CASES, ids=lambda case: getattr(case, "__name__", str(case)))
def test_it_goes_back_wherever_it_fails(it, fault, workers, nth, more):
    if workers or not set(more) - {"drop_last"}:
        check(it, fault, workers, nth, **more)


@pytest.mark.long  # torch's handler of SIGCHLD may raise in whatever runs by then, pytest itself too
def test_at_the_scripts_size_again_a_worker_that_dies_is_torchs_to_tell_of(it):
    training = check(it, kill, 2)
    iterator = iter(training.loader)
    assert chain_of(iterator) is None and type(iterator).__module__.startswith("torch.")
    del iterator
    it.ask("c2", batch_size=LARGER)
    iterator, heard = iter(training.loader), []
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid.*\) (is killed|exited unexpectedly)"):
        for batch in iterator:  # goes back at its first batch
            heard.append(len(batch))
            if len(heard) == 3:
                os.kill(chain_of(iterator).pids()[0], signal.SIGKILL)
    assert heard[:3] == [OWN] * 3
    assert states(it, "c2")[-1] == "rolled_back" and states(it, "c2").count("rolled_back") == 1


class Broken(Counted):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 21:
            raise ValueError("broken file")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_fails_at_any_size_is_the_scripts_own_and_no_change_is_blamed(it, workers):
    """The script leaves out what cannot be read: sample 21 stands in the middle of a larger batch."""
    training = Training(it, DataLoader(Broken(), OWN, num_workers=workers))

    def epoch() -> list[int]:
        seen, iterator = [], iter(training.loader)
        while True:
            try:
                batch = next(iterator)
            except ValueError:
                continue
            except StopIteration:
                return seen
            train = training.model(batch).mean()
            train.backward()
            training.optimizer.step()
            seen += batch[:, 0].int().tolist()

    left_out = [index for index in range(COUNT) if index not in range(20, 24)]
    assert epoch() == left_out
    it.ask("c1", batch_size=LARGER)
    assert epoch() == left_out
    told = it.of("change", id="c1")
    assert "broken file" not in str(told), "it is not the size that cannot be read"


def test_a_second_failure_goes_all_the_way_and_takes_the_earlier_size_with_it(it):
    """16 fails at once, and 8, which had been fine for an epoch, then fails as well."""
    sizes = []

    def collate(rows):
        sizes.append(len(rows))
        if len(rows) > LARGER or (16 in sizes and len(rows) > OWN):
            raise MemoryError
        return torch.stack(rows)

    training = Training(it, loader_of(collate, 0))
    training.epoch()
    it.ask("c1", batch_size=LARGER)
    training.epoch()
    assert states(it, "c1") == ["applying", "settling"]
    it.ask("c2", batch_size=16)
    training.epoch()
    assert training.sizes[2] == training.sizes[0]
    assert states(it, "c2")[-1] == states(it, "c1")[-1] == "rolled_back"
    training.epoch()
    assert training.sizes[3] == training.sizes[0] and row(it)["in_force"] == OWN
    assert [sorted(seen) for seen in training.seen] == [[float(n) for n in range(COUNT)]] * 4


def test_a_loader_that_makes_its_own_iterators_keeps_its_size(it):
    class Odd(DataLoader):
        def _get_iterator(self):
            return super()._get_iterator()

    training = Training(it, Odd(Counted(), OWN))
    training.epoch()
    it.ask("c1", batch_size=LARGER)
    training.epoch()
    assert training.sizes[1] == training.sizes[0]
    assert states(it, "c1") == ["refused"] and "could not be taken back" in reason(it, "c1")


def seeded() -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(11)
    return generator


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 40), st.booleans(), st.booleans())
def test_cut_anew_again_and_again_each_index_comes_once_and_in_order(moves, count, drops, shuffles):
    """And the sampler's generator ends where torch's own batches, used up, would have left it."""
    draw = random.Random(moves)
    own, now = draw.randint(1, 6), draw.randint(1, 12)
    bare, generator = seeded(), seeded()
    order = list(RandomSampler(range(count), generator=bare)) if shuffles and count else list(range(count))
    sampler = (
        RandomSampler(range(count), generator=generator) if shuffles and count else SequentialSampler(range(count))
    )
    cuts = Cuts(BatchSampler(sampler, now, drops), now, own)
    feed = Feed(cuts, lead=draw.randint(0, 3), unsure_after=cuts.left() if shuffles else None)
    served: list[int] = []
    while feed.more():
        on_their_way = []
        for _ in range(draw.randint(1, 4)):  # a source reads ahead
            if feed.peek():
                on_their_way.append(feed.ahead())
        for _ in range(draw.randint(0, len(on_their_way))):
            batch = on_their_way.pop(0)
            assert len(batch) == now or (not drops and len(served) + len(batch) == count)
            served += batch
            feed.handed_out()
        feed.give_back(on_their_way)
        if draw.random() < 0.3:
            size = draw.choice([None, 3, 7])
            feed.recut(size)
            now = own if size is None else size
    assert served == order[: len(served)]
    assert len(served) == count if not drops else count - len(served) < now
    assert torch.equal(generator.get_state(), bare.get_state())

"""Small real trainings, as loops over loaders of every kind, with everything that must equal a bare run as outcome.

Each scene is a function of (workers, prefetch, persistent) as a script would have written them; it returns
an Outcome that can be compared with ``==``. Scenes know nothing of cockpit.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    get_worker_info,
)

SIZE, BATCH, EPOCHS = 30, 3, 3


class Outcome(NamedTuple):
    """Per epoch what was served; what the loop itself drew; the states that all generators ended in."""

    epochs: list[list[Any]]
    drawn: list[float]
    states: list[Any]

    def indices(self) -> list[list[int]]:
        return [[int(row[0]) for batch in epoch for row in batch] for epoch in self.epochs]


class Squares(Dataset):
    """Deterministic: the index and numbers that follow from it."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, index * index, index * 7 % 11])


class Noisy(Squares):
    """Tells where it was loaded and what it drew: (index, seed of the worker or -1, draw of each generator)."""

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        seed = info.seed if info else -1
        draws = [torch.rand(1, dtype=torch.float64).item(), random.random(), np.random.rand()]
        return torch.tensor([index, seed % 2**52, *draws], dtype=torch.float64)


class Lazy:
    """Draws each index only when asked for it, from its own generator."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Any:
        for _ in range(SIZE):
            yield int(torch.randint(SIZE, (1,), generator=self.generator))


class EagerBatches:
    """Shuffles in ``__iter__`` itself, with the global generator, and is no generator function."""

    def __len__(self) -> int:
        return SIZE // BATCH

    def __iter__(self) -> Any:
        order = torch.randperm(SIZE).tolist()
        return iter([order[at : at + BATCH] for at in range(0, SIZE, BATCH)])


class OneList:
    """Fills and yields one list again and again, which is fine for a script without workers."""

    def __len__(self) -> int:
        return SIZE // BATCH

    def __iter__(self) -> Any:
        batch: list[int] = []
        for at in range(0, SIZE, BATCH):
            batch[:] = range(at, at + BATCH)
            yield batch


def seed_everything() -> None:
    torch.manual_seed(3)
    random.seed(4)
    np.random.seed(5)


def train(loader: Any, epochs: int = EPOCHS, sampler: Any = None, leave_at: int | None = None) -> Outcome:
    """The loop: every step draws from all three global generators, as dropout and augmentation would."""
    served: list[list[Any]] = []
    drawn: list[float] = []
    for epoch in range(epochs):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        batches = []
        for at, batch in enumerate(loader):
            batches.append(batch.tolist())
            drawn += [torch.rand(1).item(), random.random(), np.random.rand()]
            if at == leave_at:
                break
        served.append(batches)
    state = np.random.get_state()
    states = [torch.get_rng_state().tolist(), random.getstate(), (state[0], state[1].tolist(), *state[2:])]
    return Outcome(served, drawn, states)


def settings(workers: int, prefetch: int, persistent: bool) -> dict[str, Any]:
    if not workers:
        return {"num_workers": 0}
    return {"num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": persistent}


def plain(**kw: Any) -> Outcome:
    return train(DataLoader(Squares(), batch_size=BATCH, shuffle=True, **kw))


def ragged(**kw: Any) -> Outcome:
    return train(DataLoader(Squares(), batch_size=4, shuffle=True, **kw))


def drop_last(**kw: Any) -> Outcome:
    return train(DataLoader(Squares(), batch_size=4, shuffle=True, drop_last=True, **kw))


def own_generator(**kw: Any) -> Outcome:
    generator = torch.Generator().manual_seed(9)
    outcome = train(DataLoader(Squares(), batch_size=BATCH, shuffle=True, generator=generator, **kw))
    return outcome._replace(states=[*outcome.states, generator.get_state().tolist()])


def shared_generator(**kw: Any) -> Outcome:
    generator = torch.Generator().manual_seed(9)
    sampler = RandomSampler(Squares(), generator=generator)
    outcome = train(DataLoader(Squares(), batch_size=BATCH, sampler=sampler, generator=generator, **kw))
    return outcome._replace(states=[*outcome.states, generator.get_state().tolist()])


def lazy_sampler(**kw: Any) -> Outcome:
    generator = torch.Generator().manual_seed(9)
    outcome = train(DataLoader(Squares(), batch_size=BATCH, sampler=Lazy(generator), **kw))
    return outcome._replace(states=[*outcome.states, generator.get_state().tolist()])


def with_replacement(**kw: Any) -> Outcome:
    generator = torch.Generator().manual_seed(9)
    sampler = RandomSampler(Squares(), replacement=True, num_samples=50, generator=generator)
    outcome = train(DataLoader(Squares(), batch_size=BATCH, sampler=sampler, **kw))
    return outcome._replace(states=[*outcome.states, generator.get_state().tolist()])


def eager_batches(**kw: Any) -> Outcome:
    return train(DataLoader(Squares(), batch_sampler=EagerBatches(), **kw))


def batches_by_hand(**kw: Any) -> Outcome:
    order = [[0, 1, 2, 3, 4], [5], [6, 7], list(range(8, 30))]
    return train(DataLoader(Squares(), batch_sampler=order, **kw))


def unbatched(**kw: Any) -> Outcome:
    batches = BatchSampler(RandomSampler(Squares()), BATCH, False)

    class Picks(Squares):
        def __getitem__(self, index: Any) -> torch.Tensor:
            return torch.stack([super(Picks, self).__getitem__(each) for each in index])

    return train(DataLoader(Picks(), batch_size=None, sampler=batches, **kw))


def collated(**kw: Any) -> Outcome:
    def collate(rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(rows).flip(0)

    return train(DataLoader(Squares(), batch_size=BATCH, shuffle=True, collate_fn=collate, **kw))


def distributed(**kw: Any) -> Outcome:
    sampler = DistributedSampler(Squares(), num_replicas=2, rank=1, shuffle=True, seed=1)
    return train(DataLoader(Squares(), batch_size=BATCH, sampler=sampler, **kw), sampler=sampler)


def leaves_early(**kw: Any) -> Outcome:
    return train(DataLoader(Squares(), batch_size=BATCH, shuffle=True, **kw), leave_at=5)


def exactly_len(**kw: Any) -> Outcome:
    """Takes ``len(loader)`` batches of each and never meets the end of the second (as in ``zip``)."""
    generator = torch.Generator().manual_seed(9)
    loader = DataLoader(Squares(), batch_size=BATCH, shuffle=True, generator=generator, **kw)
    served: list[list[Any]] = []
    for _ in range(EPOCHS):
        iterator = iter(loader)
        served.append([next(iterator).tolist() for _ in range(len(loader))])
    return Outcome(served, [], [torch.get_rng_state().tolist(), generator.get_state().tolist()])


def one_list(**kw: Any) -> Outcome:
    """Only without workers of its own: with them torch itself would race with the list."""
    return train(DataLoader(Squares(), batch_sampler=OneList(), **kw))


def lazy_global(leave_at: int | None = None, **kw: Any) -> Outcome:
    """The sampler draws from the generator that the training draws from: every moment of reading shows."""
    return train(DataLoader(Squares(), batch_size=BATCH, sampler=Lazy(None), **kw), leave_at=leave_at)


SCENES: dict[str, Any] = {
    scene.__name__: scene
    for scene in (
        plain, ragged, drop_last, own_generator, shared_generator, lazy_sampler, with_replacement, eager_batches,
        batches_by_hand, unbatched, collated, distributed, leaves_early, exactly_len,
    )
}  # fmt: skip

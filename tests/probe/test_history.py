"""How much of the past a loader tells: the samples of its last 64 epochs, and how many epochs there were."""

from __future__ import annotations

from watched import Slow, SlowSGD, loader_of, train_step


def test_the_samples_of_the_last_64_epochs(it):
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    loader = loader_of(it, 8)
    for number in range(70):
        for batch in loader if number else loader_of(it, 4):
            train_step(model, optimizer, batch)
    first, usual = it.of("loaders")[-1]["loaders"]
    assert (usual["epochs"], usual["samples_by_epoch"]) == (69, [8] * 64)
    assert (first["epochs"], first["samples_by_epoch"]) == (1, [4])

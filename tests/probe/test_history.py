"""Epochs as loaders count them: the samples of the last 64, and whose they are where a loader does not train."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader
from watched import Rows, Slow, SlowSGD, loader_of, train_step


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


def test_a_schedule_for_a_loader_that_does_not_train_counts_the_trainings_epochs(it):
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    loader, held_out = loader_of(it, 8), loader_of(it, 4)
    place = it.probe.registry._made[id(held_out)].place + "#2"
    entry = {"id": "at0", "when": "epoch", "n": 3, "knobs": {"num_workers": 1}, "loader": place}
    it.probe.asks.start({"at": [entry]})
    workers = []
    for _ in range(4):
        for batch in loader:
            train_step(model, optimizer, batch)
        with torch.no_grad():
            for batch in held_out:
                model(batch)
        it.beat()
        workers.append(it.probe.registry.records[place].in_force)
    assert [found.num_workers if found else 0 for found in workers] == [0, 0, 1, 1]
    assert [m["state"] for m in it.of("change", id="at0")] == ["applying", "settling"]


class AtHome(Rows):
    """Fails in every process but the one that made it."""

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            raise OSError("only at home")
        return super().__getitem__(index)


def test_a_change_for_all_that_one_loader_cannot_take_is_taken_back_from_the_others(it):
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    good, bad = loader_of(it, 24), DataLoader(AtHome(it, 24), batch_size=4)
    for number in range(4):
        for left, right in zip(good, bad, strict=True):
            train_step(model, optimizer, left + right)
        it.beat()
        if number == 0:
            it.ask("c1", num_workers=1)
    assert [m["state"] for m in it.of("change", id="c1")][-1] == "rolled_back"
    assert [record.in_force.num_workers for record in it.probe.registry.records.values()] == [0, 0]
    assert it.recorder.setting.change is None

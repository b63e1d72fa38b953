"""Changes on their way: where they land, what is said about them, and that nothing is claimed that was not found."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from watched import Rows, Slow, SlowSGD, Stream, loader_of, train_step


def epoch(it, loader, model, optimizer, at=None):
    """One epoch of training; ``at`` maps a batch's number to what is done before it is trained on."""
    seen = []
    for index, batch in enumerate(loader):
        (at or {}).get(index, lambda: None)()
        train_step(model, optimizer, batch)
        seen.append(batch[:, 0].tolist())
        it.beat()
    return seen


def made(it):
    model = Slow(it)
    return model, SlowSGD(it, model.parameters(), lr=0.1)


def states(it, name):
    return [m["state"] for m in it.of("change", id=name)]


def knob(it, name, loader=0):
    loaders = it.of("loaders")[-1]["loaders"]
    return next(k for k in loaders[loader]["knobs"] if k["name"] == name)


def last(it, name):
    return it.of("change", id=name)[-1]


def test_a_change_lands_at_the_next_epoch_and_is_reported_as_found(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    first = epoch(it, loader, model, optimizer, {2: lambda: it.ask("c1", num_workers=2)})
    assert states(it, "c1") == []
    second = epoch(it, loader, model, optimizer)
    assert states(it, "c1") == ["applying", "settling"]
    found = last(it, "c1")
    assert found["before"] == {"num_workers": 0} and found["in_force"] == {"num_workers": 2}
    assert found["step"] == 6 and found["capacity"] == 4 and found["stall_ms"] > 0
    assert knob(it, "num_workers")["in_force"] == 2 and knob(it, "num_workers")["script"] == 0
    pids = it.of("loaders")[-1]["loaders"][0]["workers"]
    assert len(pids) == 2
    assert first == second


def test_now_lands_in_the_middle_of_the_epoch_and_loses_no_batch(it):
    model, optimizer = made(it)
    loader = loader_of(it, 80)
    seen = epoch(it, loader, model, optimizer, {3: lambda: it.ask("c1", now=True, num_workers=2)})
    assert [x for batch in seen for x in batch] == [float(i) for i in range(80)]
    assert states(it, "c1") == ["applying", "settling"]
    assert last(it, "c1")["step"] == 4
    assert it.of("epoch")[0]["samples"] == 80


def test_several_asks_before_one_boundary_are_each_reported(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    epoch(it, loader, model, optimizer)
    it.ask("a", num_workers=1)
    it.ask("b", num_workers=2, prefetch_factor=3)
    it.ask("c", in_order=False)
    epoch(it, loader, model, optimizer)
    assert [states(it, n) for n in "abc"] == [["applying", "settling"]] * 3
    assert last(it, "b")["in_force"] == {"num_workers": 2, "prefetch_factor": 3}
    assert last(it, "c")["in_force"] == {"in_order": False}


def test_an_id_is_taken_once_and_a_queued_one_can_be_withdrawn(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    epoch(it, loader, model, optimizer)
    it.ask("c1", num_workers=1)
    it.ask("c1", num_workers=4)
    it.ask("c2", num_workers=3)
    it.probe.asks.receive({"m": "drop", "id": "c2"})
    epoch(it, loader, model, optimizer)
    assert states(it, "c2") == ["dropped"]
    assert last(it, "c1")["in_force"] == {"num_workers": 1}
    it.probe.asks.receive({"m": "drop", "id": "c1"})
    assert states(it, "c1") == ["applying", "settling"]


@pytest.mark.parametrize(
    ("knobs", "word"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"speed": 3}, "speed"),
        ({"in_order": "maybe"}, "in_order"),
        ({}, "nothing"),
        ({"prefetch_factor": 4}, "needs workers"),
        ({"pin_memory": True}, "accelerator"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(it, knobs, word):
    model, optimizer = made(it)
    loader = loader_of(it)
    epoch(it, loader, model, optimizer)
    it.ask("c1", **knobs)
    epoch(it, loader, model, optimizer)
    assert states(it, "c1") == ["refused"]
    assert word in last(it, "c1")["reason"]
    assert it.of("loaders")[-1]["loaders"][0]["workers"] == []


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize("now", [False, True])
def test_what_the_script_asks_for_in_vain_is_refused_and_not_called_in_force_before(it, now):
    """It was told as on before and off after, and with ``now`` it waited for the end of a loop without one."""
    model, optimizer = made(it)
    loader = DataLoader(Rows(it, 16), batch_size=4, pin_memory=True)
    epoch(it, loader, model, optimizer, {1: lambda: it.ask("c1", now=now, pin_memory=True)})
    assert states(it, "c1") == (["refused"] if now else [])
    epoch(it, loader, model, optimizer)
    assert states(it, "c1") == ["refused"] and "accelerator" in last(it, "c1")["reason"]
    assert knob(it, "pin_memory")["in_force"] is False


def test_now_where_only_the_boundary_is_possible_waits_for_it_and_says_why(it):
    model, optimizer = made(it)
    loader = DataLoader(Stream(it, 24), batch_size=4)
    epoch(it, loader, model, optimizer, {1: lambda: it.ask("c1", now=True, num_workers=1)})
    assert states(it, "c1") == []
    assert "boundary" in knob(it, "num_workers")["reason"]
    epoch(it, loader, model, optimizer)
    assert states(it, "c1") == ["applying", "settling"]
    assert knob(it, "num_workers")["reason"] is None or "boundary" in knob(it, "num_workers")["reason"]


def test_a_change_for_all_settles_when_both_training_loaders_have_it(it):
    model, optimizer = made(it)
    left, right = loader_of(it, 16), DataLoader(Rows(it, 32), batch_size=4)
    ends = iter(right)
    for number in range(3):
        for batch in left:
            next(ends, None)
            train_step(model, optimizer, batch)
            it.beat()
        if number == 0:
            it.ask("c1", num_workers=1)
        if number == 1:
            assert states(it, "c1") == ["applying"]
            ends = iter(right)
    assert states(it, "c1") == ["applying", "settling"]
    assert {k["in_force"] for n in (0, 1) for k in [knob(it, "num_workers", n)]} == {1}


def test_a_named_loader_is_changed_alone_even_if_it_does_not_train(it):
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 8)
    for number in range(3):
        epoch(it, loader, model, optimizer)
        with torch.no_grad():
            for batch in held_out:
                model(batch)
        if number == 0:
            it.ask("c1", loader=list(it.roles())[1], num_workers=1)
    assert states(it, "c1") == ["applying", "settling"]
    assert [knob(it, "num_workers", n)["in_force"] for n in (0, 1)] == [0, 1]
    assert it.recorder.setting.change is None


def test_set_from_the_start_reaches_every_loader_until_it_shows_that_it_does_not_train(it):
    it.probe.asks.start({"set": {"num_workers": 1}})
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 8)
    workers = []
    for _ in range(2):
        with torch.no_grad():
            batches = iter(held_out)
            for batch in batches:
                model(batch)
            workers.append(batches._num_workers if hasattr(batches, "_workers") else len(in_force(it, 0)))
        epoch(it, loader, model, optimizer)
    assert knob(it, "num_workers", 1)["in_force"] == 1
    assert next(iter(it.probe.registry.records.values())).wanted == {}
    assert list(it.roles().values()) == ["other", "train"]


def test_a_pass_before_the_training_does_not_cost_the_loader_what_was_set_from_the_start(it):
    it.probe.asks.start({"set": {"num_workers": 1}})
    model, optimizer = made(it)
    loader = loader_of(it)
    for batch in loader:  # to measure a mean, say
        batch.mean()
    epoch(it, loader, model, optimizer)
    assert list(it.roles().values()) == ["train"]
    epoch(it, loader, model, optimizer)
    assert knob(it, "num_workers")["in_force"] == 1


def test_what_was_set_from_the_start_and_fails_gives_way_with_the_reason(it):
    it.probe.asks.start({"set": {"num_workers": 1}})
    model, optimizer = made(it)
    loader = DataLoader(Picky(), batch_size=4)
    assert [len(epoch(it, loader, model, optimizer)) for _ in range(2)] == [8, 8]
    assert knob(it, "num_workers")["in_force"] == 0
    assert "cannot be opened twice" in knob(it, "num_workers")["reason"]


def in_force(it, number):
    return list(it.probe.registry.records.values())[number].workers


def test_a_word_for_one_loader_from_the_start(it):
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 8)
    it.probe.asks.start({"loaders": {place(loader, it) + "#2": {"num_workers": 1}}})
    for _ in range(2):
        epoch(it, loader, model, optimizer)
        with torch.no_grad():
            for batch in held_out:
                model(batch)
    records = list(it.probe.registry.records.values())
    assert [r.wanted for r in records] == [{}, {"num_workers": 1}]


def place(loader, it):
    return it.probe.registry._made[id(loader)].place


@pytest.mark.parametrize(
    ("entry", "step"),
    [
        ({"when": "epoch", "n": 2}, 12),
        ({"when": "epoch", "n": 0}, 0),
        ({"when": "step", "n": 8}, 8),
        ({"when": "time", "n": 0.150}, 8),
    ],
)
def test_the_schedule_lands_where_it_says(it, entry, step):
    it.probe.asks.start({"at": [{"id": "at0", "knobs": {"num_workers": 1}, "loader": None, **entry}]})
    model, optimizer = made(it)
    loader = loader_of(it)
    for _ in range(4):
        epoch(it, loader, model, optimizer)
    assert states(it, "at0") == ["applying", "settling"]
    assert abs(it.of("change", id="at0")[0]["step"] - step) <= (1 if entry["when"] == "time" else 0)


@pytest.mark.parametrize("kept", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_the_schedule_counts_epochs_that_are_left_early(it, kept):
    it.probe.asks.start({"at": [{"id": "at0", "knobs": {"num_workers": 2}, "when": "epoch", "n": 2, "loader": None}]})
    model, optimizer = made(it)
    loader = loader_of(it, 40, **kept)
    for _ in range(4):
        batches = iter(loader)
        for _ in range(4):
            train_step(model, optimizer, next(batches))
    assert it.of("change", id="at0")[0]["step"] in (7, 8)  # the last step may still be open when iter() is called
    assert [e["steps"] for e in it.of("epoch")] == [4] * 3


def test_a_loader_made_anew_each_epoch_inherits_what_was_asked_of_its_place(it):
    model, optimizer = made(it)
    for number in range(3):
        loader = loader_of(it)
        epoch(it, loader, model, optimizer)
        if number == 0:
            it.ask("c1", num_workers=1)
    assert states(it, "c1") == ["applying", "settling"]
    assert len(it.roles()) == 1
    assert knob(it, "num_workers")["in_force"] == 1


def test_now_works_where_only_the_iterator_is_left_of_the_loader(it):
    model, optimizer = made(it)
    seen = epoch(it, iter(loader_of(it, 40)), model, optimizer, {2: lambda: it.ask("c1", now=True, num_workers=1)})
    assert states(it, "c1") == ["applying", "settling"]
    assert len(seen) == 10


class Picky(Dataset):
    """Fails in every process but the one that made it."""

    def __init__(self, count: int = 32) -> None:
        self.home, self.count = os.getpid(), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if os.getpid() != self.home:
            raise OSError("this file cannot be opened twice")
        return torch.full((2,), float(index))


@pytest.mark.parametrize("now", [False, True])
def test_what_fails_in_the_workers_is_rolled_back_with_the_reason_and_training_goes_on(it, now):
    model, optimizer = made(it)
    loader = DataLoader(Picky(), batch_size=4)
    batches = []
    for number in range(3):
        ask = {1: lambda: it.ask("c1", now=now, num_workers=2)} if number == 0 else None
        batches.append(epoch(it, loader, model, optimizer, ask))
    assert [len(b) for b in batches] == [8, 8, 8]
    assert states(it, "c1")[-1] == "rolled_back"
    assert "cannot be opened twice" in last(it, "c1")["reason"]
    assert knob(it, "num_workers")["in_force"] == 0
    assert "cannot be opened twice" in knob(it, "num_workers")["reason"]


def test_what_changed_nothing_is_not_rolled_back_with_what_failed(it):
    """Three on one schedule: only two of them can have to do with workers that fail."""
    knobs = ({"in_order": True}, {"num_workers": 2}, {"prefetch_factor": 3})
    it.probe.asks.start({
        "at": [{"id": f"at{n}", "when": "epoch", "n": 1, "knobs": each} for n, each in enumerate(knobs)]
    })  # fmt: skip
    model, optimizer = made(it)
    loader = DataLoader(Picky(), batch_size=4)
    for _ in range(3):
        epoch(it, loader, model, optimizer)
    assert states(it, "at0") == ["applying", "settling"] and last(it, "at0")["in_force"] == {"in_order": True}
    assert [states(it, name)[-1] for name in ("at1", "at2")] == ["rolled_back"] * 2
    record = next(iter(it.probe.registry.records.values()))
    assert record.wanted == {"in_order": True} and "in_order" not in record.reasons


def test_workers_that_are_killed_epochs_later_take_one_change_back_and_the_next_the_one_before(it):
    model, optimizer = made(it)
    loader = loader_of(it, 64, prefetch_factor=None)

    def kill():
        os.kill(next(iter(it.probe.registry.records.values())).workers[0], signal.SIGKILL)

    def in_force():
        return knob(it, "num_workers")["in_force"]

    epoch(it, loader, model, optimizer)
    it.ask("c1", num_workers=1)
    epoch(it, loader, model, optimizer)
    it.ask("c2", num_workers=2)
    for at in ({}, {}, {4: kill}):
        seen = epoch(it, loader, model, optimizer, at)
        assert sorted(index for batch in seen for index in batch) == list(range(64))
    assert [states(it, name)[-1] for name in ("c1", "c2")] == ["settling", "rolled_back"] and in_force() == 1
    assert it.recorder.setting.change == "c1"
    epoch(it, loader, model, optimizer)
    assert in_force() == 1
    epoch(it, loader, model, optimizer, {4: kill})
    assert states(it, "c1")[-1] == "rolled_back" and in_force() == 0 and it.recorder.setting.change is None
    epoch(it, loader, model, optimizer)
    assert in_force() == 0


def test_what_was_undone_is_no_way_back(it):
    """None, 1, 2 and 1 again: where that one is killed later, it is not 2 that take its place."""
    model, optimizer = made(it)
    loader = loader_of(it, 48)
    for name, workers in (("c1", 1), ("c2", 2), ("c3", 1)):
        epoch(it, loader, model, optimizer)
        it.ask(name, num_workers=workers)
    epoch(it, loader, model, optimizer)
    record = next(iter(it.probe.registry.records.values()))
    epoch(it, loader, model, optimizer, {4: lambda: os.kill(record.workers[0], signal.SIGKILL)})
    assert knob(it, "num_workers")["in_force"] == 0 and record.wanted == {}
    assert {states(it, name)[-1] for name in ("c1", "c3")} == {"rolled_back"}
    assert it.recorder.setting.change is None
    epoch(it, loader, model, optimizer)
    assert knob(it, "num_workers")["in_force"] == 0


def test_after_a_roll_back_steps_run_under_what_they_ran_under_before(it):
    model, optimizer = made(it)
    loader = DataLoader(Picky(320), batch_size=4)
    for name, now in (("c1", False), ("c2", True)):
        epoch(it, loader, model, optimizer, {40: lambda name=name, now=now: it.ask(name, now=now, num_workers=2)})
    epoch(it, loader, model, optimizer)
    assert [states(it, name)[-1] for name in ("c1", "c2")] == ["rolled_back"] * 2
    blocks = it.of("block")
    assert len(blocks) >= 4 and {b["change"] for b in blocks} == {None}


def test_blocks_never_span_a_change(it):
    model, optimizer = made(it)
    loader = loader_of(it, 680)
    asks = {57: lambda: it.ask("c1", now=True, num_workers=1), 113: lambda: it.ask("c2", now=True, num_workers=0)}
    epoch(it, loader, model, optimizer, asks)
    blocks = it.of("block")
    landed = {m["id"]: m["step"] for m in it.of("change", state="applying")}
    assert {b["change"] for b in blocks} == {None, "c1", "c2"}
    for block in blocks:
        steps = range(block["step"] - block["steps"] + 1, block["step"] + 1)
        assert block["steps"] >= 10 and block["wall_ns"] >= 500e6
        for name, step in landed.items():
            assert all(s < step for s in steps) or all(s >= step for s in steps), (name, block)


def test_undone_means_the_scripts_own_again(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    epoch(it, loader, model, optimizer)
    for name, value in (("c1", 2), ("c2", "script")):
        it.ask(name, num_workers=value)
        epoch(it, loader, model, optimizer)
    assert last(it, "c2")["in_force"] == {"num_workers": 0}
    assert type(iter(loader)).__module__ == "torch.utils.data.dataloader"


def test_waits_are_told_apart(it, tmp_path: Path):
    from cockpit.probe.waits import wait_kind

    class Source:
        _rcvd_idx, _in_order = 3, True

        def __init__(self, tasks: dict) -> None:
            self._task_info = tasks

    assert wait_kind(Source({3: (0,)}), 0) == "starved"
    assert wait_kind(Source({3: (0,), 4: (1, "data")}), 1) == "head"
    assert wait_kind(Source({3: (0,), 4: (1, "data")}), 2) == "hand_over"
    assert wait_kind(Source({3: (0, "data")}), 1) == "hand_over"


def test_what_lands_on_the_last_batch_of_an_epoch_is_reported_in_the_next(it):
    model, optimizer = made(it)
    loader = loader_of(it, 24, num_workers=1)
    it.probe.changes.looked_at = lambda stream, iterator, took_ns: None  # as if no batch had followed
    epoch(it, loader, model, optimizer, {2: lambda: it.ask("c1", now=True, num_workers=2)})
    assert states(it, "c1") == ["applying"]
    del it.probe.changes.looked_at
    epoch(it, loader, model, optimizer)
    assert states(it, "c1") == ["applying", "settling"]
    assert last(it, "c1")["in_force"] == {"num_workers": 2}


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("knobs", [{"num_workers": 0}, {"num_workers": "script", "batch_size": 4}], ids=str)
def test_what_the_script_has_already_is_no_change_however_early_it_is_asked_for(it, now, knobs):
    model, optimizer = made(it)
    loader = loader_of(it, 40)
    setting = it.recorder.setting
    it.ask("c1", now=now, **knobs)
    epoch(it, loader, model, optimizer)
    epoch(it, loader, model, optimizer)
    assert states(it, "c1") == ["dropped"] and it.recorder.setting is setting
    it.ask("c2", now=now, num_workers=1)
    epoch(it, loader, model, optimizer)
    it.ask("c3", now=now, num_workers="script")
    epoch(it, loader, model, optimizer)
    assert (states(it, "c2"), states(it, "c3")) == (["applying", "settling"], ["applying", "settling"])


@pytest.mark.parametrize("now", [False, True])
def test_what_is_in_force_already_is_not_changed_again(it, now):
    """Asked again, with another id, while the first was landing: the engine could not know."""
    model, optimizer = made(it)
    loader = loader_of(it, 40)
    epoch(it, loader, model, optimizer)
    it.ask("c1", num_workers=1)
    epoch(it, loader, model, optimizer, {2: lambda: it.ask("c2", now=now, num_workers=1)})
    setting = it.recorder.setting
    epoch(it, loader, model, optimizer)
    assert (states(it, "c1"), states(it, "c2")) == (["applying", "settling"], ["dropped"])
    assert it.recorder.setting is setting and setting.change == "c1"

"""The batch size through the whole probe: asked as the engine asks, landed at a boundary, watched over an epoch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset
from watched import Rows, Slow, SlowSGD, Stream, loader_of, train_step


class Training:
    """A loop over ``loader``; ``sizes`` are the batches of each epoch, ``seen`` the samples."""

    def __init__(self, it, loader=None, model=None) -> None:
        self.it, self.loader = it, loader if loader is not None else loader_of(it)
        self.model = model or Slow(it)
        self.optimizer = SlowSGD(it, self.model.parameters(), lr=0.01)
        self.sizes: list[list[int]] = []
        self.seen: list[list[float]] = []

    def epoch(self, most: int | None = None, loader=None) -> list[int]:
        sizes, seen = [], []
        for batch in loader if loader is not None else self.loader:
            train_step(self.model, self.optimizer, batch)
            sizes.append(len(batch))
            seen += batch[:, 0].tolist()
            self.it.beat()
            if len(sizes) == most:
                break
        self.sizes.append(sizes)
        self.seen.append(seen)
        return sizes


def row(it, number=0):
    return next(k for k in it.of("loaders")[-1]["loaders"][number]["knobs"] if k["name"] == "batch_size")


def states(it, name):
    return [m["state"] for m in it.of("change", id=name)]


def reason(it, name):
    return it.of("change", id=name)[-1]["reason"]


def test_at_the_boundary_and_back_to_the_scripts_own(it):
    training = Training(it, loader_of(it, 24, shuffle=True))
    training.epoch()
    assert (row(it)["script"], row(it)["in_force"], row(it)["can"], row(it)["can_now"]) == (4, 4, True, False)
    it.ask("c1", batch_size=8)
    assert training.epoch() == [8, 8, 8]
    assert states(it, "c1") == ["applying", "settling"]
    assert it.of("change", id="c1")[-1]["before"] == {"batch_size": 4}
    assert it.of("change", id="c1")[-1]["in_force"] == {"batch_size": 8} and row(it)["in_force"] == 8
    it.ask("c2", batch_size="script")
    assert training.epoch() == [4] * 6
    assert row(it)["in_force"] == training.loader.batch_size == 4 and it.recorder.setting.change == "c2"
    assert [sorted(seen) for seen in training.seen] == [[float(n) for n in range(24)]] * 3
    assert [e["samples"] for e in it.of("epoch")] == [24] * 3


def test_the_first_epoch_is_waited_for(it):
    training = Training(it)
    it.probe.asks.start({"set": {"batch_size": 8}})
    assert training.epoch() == [4] * 6
    assert (row(it)["asked"], row(it)["in_force"]) == (8, 4)
    assert "batches of 8: 3 an epoch instead of 6" in row(it)["note"]
    assert training.epoch() == [8] * 3
    assert (row(it)["asked"], row(it)["in_force"]) == (None, 8)


def test_a_schedule_for_the_first_epoch_lands_at_the_second(it):
    it.probe.asks.start({"at": [{"id": "at0", "when": "epoch", "n": 0, "knobs": {"batch_size": 8, "num_workers": 1}}]})
    training = Training(it)
    assert training.epoch() == [4] * 6 and states(it, "at0") == []
    assert training.epoch() == [8] * 3 and states(it, "at0") == ["applying", "settling"]
    assert it.of("change", id="at0")[-1]["in_force"] == {"batch_size": 8, "num_workers": 1}


def test_now_waits_for_the_boundary_with_the_reason(it):
    training = Training(it)
    training.epoch()
    for number, batch in enumerate(training.loader):
        if number == 2:
            it.ask("c1", now=True, batch_size=8, num_workers=1)
        train_step(training.model, training.optimizer, batch)
        assert len(batch) == 4
    assert states(it, "c1") == [] and "epoch boundary" in row(it)["reason"]
    assert training.epoch() == [8] * 3
    assert states(it, "c1") == ["applying", "settling"]


def test_what_it_does_is_said_before(it):
    training = Training(it, loader_of(it, 26))
    training.epoch()
    len(training.loader)
    it.ask("c1", batch_size=8)
    it.beat()
    note = row(it)["note"]
    assert row(it)["asked"] == 8
    assert "batches of 8: 4 an epoch instead of 7, the last of 2" in note
    assert "only seen" not in note, "the last batch of an epoch had two"
    assert "effective batch ×2" in note and "test_batch_knob.py:" in note and "len(loader)" in note


def test_a_loop_that_has_seen_one_size_only_is_said_to(it):
    training = Training(it, loader_of(it, 24))
    training.epoch()
    assert "the loop has only seen batches of 4" in row(it)["note"]
    it.ask("c1", batch_size=8)
    training.epoch()
    it.beat()
    assert "only seen" not in row(it)["note"]


def test_refused_where_another_loader_would_change_with_it(it):
    training = Training(it)
    DataLoader(training.loader.dataset, batch_sampler=training.loader.batch_sampler)
    shares = DataLoader(training.loader.dataset, batch_sampler=training.loader.batch_sampler)
    training.epoch()
    it.ask("c1", batch_size=8)
    training.epoch()
    assert states(it, "c1") == ["refused"] and "same batch sampler" in reason(it, "c1") and len(list(shares)) == 6


def test_what_is_refused_whenever_is_refused_at_once(it):
    class Normed(Slow):
        def __init__(self, it):
            super().__init__(it)
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return super().forward(self.norm(x))

    training = Training(it, loader_of(it, 25 + 1), Normed(it))
    training.epoch()
    it.ask("c1", batch_size=5)
    assert states(it, "c1") == ["refused"] and "batch norm" in reason(it, "c1")
    it.ask("c2", batch_size=1)
    assert states(it, "c2") == ["refused"]
    it.ask("c3", batch_size=6)
    training.epoch()
    assert states(it, "c3") == ["applying", "settling"]


class Own(BatchSampler):
    pass


def test_refused_where_somebody_else_makes_the_batches(it):
    data = Rows(it, 24)
    for loader, words in (
        (DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, False)), "made the batches itself"),
        (DataLoader(Stream(it), batch_size=4), "iterable"),
    ):
        number = len(it.probe.registry.records)
        training = Training(it, loader)
        training.epoch()
        name = f"c{number}"
        it.ask(name, loader=list(it.probe.registry.records)[number], batch_size=8)
        assert training.epoch() == [4] * 6
        assert states(it, name) == ["refused"] and words in reason(it, name)
        assert not row(it, number)["can"] and words in row(it, number)["reason"]


def test_the_size_that_a_batch_sampler_makes_is_known_after_changes_too(it):
    """Accelerate and others hand over a batch sampler: the loader itself has no size."""
    training = Training(
        it, DataLoader(Rows(it, 24), batch_sampler=BatchSampler(SequentialSampler(range(24)), 4, False))
    )
    training.epoch()
    record = next(iter(it.probe.registry.records.values()))
    assert record.batch_size == 4
    it.ask("c1", prefetch_factor=3, num_workers=1)
    assert training.epoch() == [4] * 6 and states(it, "c1") == ["applying", "settling"]
    assert record.batch_size == 4


def test_refused_where_the_loop_leaves_early(it):
    training = Training(it)
    training.epoch(most=5)
    assert not row(it)["can"] and "left the last epoch" in row(it)["reason"]
    it.ask("c1", batch_size=8)
    assert training.epoch(most=5) == [4] * 5
    assert states(it, "c1") == ["refused"]


def test_a_peek_between_epochs_is_no_epoch(it):
    training = Training(it)
    for number in range(3):
        next(iter(training.loader))
        if number == 1:
            it.ask("c1", batch_size=8)
        training.epoch()
    assert training.sizes == [[4] * 6, [8] * 3, [8] * 3]
    assert states(it, "c1") == ["applying", "settling"]


def test_refused_where_two_loaders_make_a_step(it):
    left, right = loader_of(it, 16), loader_of(it, 32)
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.01)
    for number in range(3):
        for a, b in zip(left, right, strict=False):
            train_step(model, optimizer, torch.cat([a, b]))
            it.beat()
        if number == 0:
            it.ask("c1", batch_size=8)
        if number == 1:
            it.ask("c2", loader=next(iter(it.roles())), batch_size=8)
    assert (states(it, "c1"), states(it, "c2")) == (["refused"], ["refused"])
    assert "several loaders" in reason(it, "c1") and "several loaders" in reason(it, "c2")
    assert (left.batch_size, right.batch_size) == (4, 4)


def test_that_two_loaders_make_a_step_is_seen_in_the_first_epoch_and_ends_what_waits(it):
    left, right = loader_of(it, 16), loader_of(it, 32)
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.01)
    it.ask("early", batch_size=8)
    for step, (a, b) in enumerate(zip(left, right, strict=False)):
        train_step(model, optimizer, torch.cat([a, b]))
        it.beat()
        if step == 2:
            it.ask("late", batch_size=8)
            assert states(it, "early") == states(it, "late") == ["refused"]
            assert all("several loaders" in row(it, number)["reason"] for number in (0, 1))
    assert "several loaders" in reason(it, "early")


def test_a_validation_loader_gone_over_in_the_middle_of_an_epoch_makes_up_no_step(it):
    training, held_out = Training(it), loader_of(it, 8)
    for _ in range(2):
        for number, batch in enumerate(training.loader):
            train_step(training.model, training.optimizer, batch)
            it.beat()
            if number % 2:
                with torch.no_grad():
                    for other in held_out:
                        training.model(other)
                it.probe.changes.news = True
                assert all("several loaders" not in row(it, place)["reason"] for place in (0, 1))
    assert list(it.roles().values()) == ["train", "other"]


def test_two_loaders_in_turns_both_take_it(it):
    first, second = loader_of(it, 16), loader_of(it, 24)
    training = Training(it, first)
    for number in range(3):
        training.epoch(loader=first)
        training.epoch(loader=second)
        if number == 0:
            it.ask("c1", batch_size=8)
    assert training.sizes[2:] == [[8, 8], [8, 8, 8]] * 2
    assert states(it, "c1") == ["applying", "settling"]


def test_several_ranks_are_refused(it):
    training = Training(it)
    training.epoch()
    it.probe._environ["WORLD_SIZE"] = "2"
    it.ask("c1", batch_size=8)
    assert states(it, "c1") == ["refused"] and "several ranks" in reason(it, "c1")


def test_the_backstop_takes_it_back_and_tells_how_many_were_not_seen(it):
    """A loop that counts its steps itself, and asks for one more than there are: 6 of 4 were all, 6 of 2 are half."""
    training = Training(it)

    def counted() -> list[int]:
        sizes, batches = [], iter(training.loader)
        for _ in range(7):
            batch = next(batches, None)
            if batch is None:
                break
            train_step(training.model, training.optimizer, batch)
            sizes.append(len(batch))
        return sizes

    assert counted() == [4] * 6
    it.ask("c1", batch_size=2, num_workers=1)
    assert counted() == [2] * 7
    assert states(it, "c1")[-1] == "rolled_back"
    assert reason(it, "c1") == "with batches of 2 the loop saw 14 of 24 samples: 10 were not seen"
    assert counted() == [4] * 6
    assert row(it)["in_force"] == 4 and "were not seen" in row(it)["reason"]
    record = next(iter(it.probe.registry.records.values()))
    assert record.wanted == {} and record.in_force.num_workers == 0, "the whole change goes back"
    assert it.recorder.setting.change is None


def test_the_backstop_judges_what_was_set_from_the_start(it):
    it.probe.asks.start({"set": {"batch_size": 2}})
    training = Training(it)
    training.epoch()
    assert training.epoch(most=8) == [2] * 8
    assert training.epoch() == [4] * 6
    assert row(it)["asked"] is None and "saw 16 of 24" in row(it)["reason"]


def test_what_rode_along_goes_back_with_it(it):
    before = torch.get_num_threads()
    try:
        training = Training(it)
        training.epoch()
        it.ask("c1", batch_size=2, threads=before + 1)
        training.epoch(most=8)
        assert states(it, "c1")[-1] == "rolled_back" and torch.get_num_threads() == before + 1
        training.epoch()
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


class AtHome(Dataset):
    """Fails in workers."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info():
            raise OSError("cannot be opened twice")
        return torch.full((2,), float(index))


def test_with_workers_that_fail_the_size_goes_back_too_and_at_once(it):
    training = Training(it, DataLoader(AtHome(), batch_size=4))
    training.epoch()
    it.ask("c1", batch_size=8, num_workers=1)
    assert training.epoch() == [4] * 6
    assert states(it, "c1")[-1] == "rolled_back" and it.recorder.setting.change is None
    assert it.of("change", id="c1")[-1]["in_force"] == {"batch_size": 4, "num_workers": 0}
    assert training.epoch() == [4] * 6


def test_a_loader_made_anew_each_epoch_keeps_it(it):
    training = Training(it)
    for number in range(4):
        training.loader = loader_of(it, 24)
        training.epoch()
        if number == 0:
            it.ask("c1", batch_size=8)
        if number == 2:
            it.ask("c2", batch_size="script")
    assert training.sizes == [[4] * 6, [8] * 3, [8] * 3, [4] * 6]
    assert states(it, "c1") == ["applying", "settling"] and len(it.roles()) == 1
    last = it.of("change", id="c2")[-1]
    assert (last["before"], last["in_force"]) == ({"batch_size": 8}, {"batch_size": 4})


def test_a_swap_in_the_middle_of_an_epoch_under_another_size(it):
    training = Training(it, loader_of(it, 96, shuffle=True))
    training.epoch()
    it.ask("c1", batch_size=8)
    sizes = []
    for number, batch in enumerate(training.loader):
        if number == 3:
            it.ask("c2", now=True, num_workers=2)
        train_step(training.model, training.optimizer, batch)
        sizes.append(len(batch))
    assert sizes == [8] * 12 and states(it, "c2") == ["applying", "settling"]
    it.ask("c3", batch_size="script", num_workers="script")
    assert training.epoch() == [4] * 24
    assert [e["samples"] for e in it.of("epoch")] == [96] * 3


@pytest.mark.parametrize("workers", [0, 1])
def test_ten_times_on_and_off_is_the_bare_training(it, workers):
    """Back at the script's size, epochs are to the bit those of a loader that was never changed."""
    more = {"num_workers": 1, "persistent_workers": True} if workers else {}
    data = TensorDataset(torch.arange(24.0).repeat(2, 1).T.contiguous())
    bare = DataLoader(data, batch_size=4, shuffle=True)
    ours = DataLoader(data, batch_size=4, shuffle=True, **more)
    training = Training(it)

    def epoch(loader) -> list[list[float]]:
        found = []
        for (batch,) in loader:
            train_step(training.model, training.optimizer, batch)
            found.append(batch[:, 0].tolist())
        return found

    for turn in range(20 if not workers else 6):
        size = 8 if turn % 2 else 4
        if turn:
            it.ask(f"c{turn}", loader=next(iter(it.probe.registry.records)), batch_size=size)
        torch.manual_seed(turn)
        found = epoch(ours)
        served = sorted(index for batch in found for index in batch)
        assert len(found[0]) == size and served == [float(n) for n in range(24)]
        if size == 4 and not workers:
            torch.manual_seed(turn)
            assert found == [batch[:, 0].tolist() for (batch,) in bare]
    assert {m["state"] for m in it.of("change")} == {"applying", "settling"}


def test_a_schedule_that_would_raise_forbids_smaller_batches_only(it):
    training = Training(it)
    schedule = torch.optim.lr_scheduler.OneCycleLR(training.optimizer, 0.1, total_steps=40)
    for batch in training.loader:
        train_step(training.model, training.optimizer, batch)
        schedule.step()
    it.ask("c1", batch_size=2)
    assert states(it, "c1") == ["refused"] and "OneCycleLR ends after step 40" in reason(it, "c1")
    it.ask("c2", batch_size=8)
    training.epoch()
    assert states(it, "c2") == ["applying", "settling"]


def test_the_epochs_length_is_told_right_from_the_first_step_on(it):
    training = Training(it)
    training.epoch()
    it.ask("c1", batch_size=8)
    seen = []
    for batch in training.loader:
        train_step(training.model, training.optimizer, batch)
        seen.append(it.of("loaders")[-1]["loaders"][0])
    assert {(info["steps_per_epoch"], info["batch_size"]) for info in seen} == {(3, 8)}


def test_asking_for_a_length_is_noticed_by_who_asks(it):
    training = Training(it)
    training.epoch()
    assert "len(loader)" not in row(it)["note"]
    assert len(training.loader) == 6
    training.epoch()
    assert "test_batch_knob.py:" in row(it)["note"]


def test_a_pass_before_the_training_is_no_epoch_of_it(it):
    """To measure a mean, say: it used the loader up, and nothing is known of the loop yet."""
    it.probe.asks.start({"set": {"batch_size": 8}})
    training = Training(it)
    for batch in training.loader:
        batch.mean()
    assert training.epoch() == [4] * 6
    assert training.epoch() == [8] * 3

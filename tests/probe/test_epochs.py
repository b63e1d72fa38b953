"""When an epoch is over, on loops that read ahead in every way, take turns, or go over one loader for other reasons.

On the real torch, under a clock of our own; each loop is one that some framework or script really has.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from itertools import islice

import pytest
import torch
from watched import Rows, Slow, SlowSGD, loader_of, train_step


def made(it, **more):
    model = Slow(it, **more)
    return model, SlowSGD(it, model.parameters(), lr=0.1)


def one_ahead(loader):
    """Accelerate, Lightning: a batch is handed on when the next has been fetched."""
    batches = iter(loader)
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


def several_ahead(loader, depth=3):
    """A prefetcher that keeps ``depth`` batches in hand."""
    batches = iter(loader)
    held = deque(islice(batches, depth))
    while held:
        yield held.popleft()
        held.extend(islice(batches, 1))


def several_at_the_end(loader, depth=3):
    """The same, but it asks no more once it was told that there are no more."""
    batches, held, over = iter(loader), deque(), False
    while held or not over:
        while not over and len(held) < depth:
            upcoming = next(batches, None)
            over = upcoming is None
            held.extend([] if over else [upcoming])
        yield held.popleft()


def epochs_of(it):
    return [(e["steps"], e["samples"]) for e in it.of("epoch")]


def totals(it):
    ticks = it.of("tick")
    return sum(t["steps"] for t in ticks), sum(t["samples"] for t in ticks)


@pytest.mark.parametrize("batches", [24, 22, 20, 8])
def test_a_loop_that_fetches_all_batches_of_an_update_first_has_as_many_steps_as_updates(it, batches):
    """Transformers with gradient accumulation, over Accelerate's one ahead; also where the last update has fewer."""
    model, optimizer = made(it)
    loader = loader_of(it, 4 * batches)
    for _ in range(3):
        upcoming = one_ahead(loader)
        while group := list(islice(upcoming, 4)):
            for batch in group:
                model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    updates = -(-batches // 4)
    iter(loader)  # only now is it known for sure that the last one is over
    assert epochs_of(it) == [(updates, 4 * batches)] * 3
    assert it.recorder.steps == it.recorder.optimizer_steps == 3 * updates


def test_from_its_second_epoch_a_loop_that_fetches_ahead_has_all_its_samples_and_waits(it):
    model, optimizer = made(it)
    loader = loader_of(it, 64)
    for epoch in range(3):
        if epoch == 1:
            it.of("tick")
            it.heard.clear()
        for batch in several_ahead(loader):
            train_step(model, optimizer, batch)
    iter(loader)
    assert totals(it) == (32, 128)
    assert sum(t["wait_ns"] + t["start_ns"] for t in it.of("tick")) / 1e6 == pytest.approx(128, abs=0.1)


@pytest.mark.parametrize("ahead", [one_ahead, several_ahead, several_at_the_end])
def test_batches_held_when_the_loader_ends_are_steps_of_that_epoch(it, ahead):
    model, optimizer = made(it)
    loader = loader_of(it, 40)
    for _ in range(3):
        for batch in ahead(loader):
            train_step(model, optimizer, batch)
        it.spend(500)  # a gap of the script's own
    iter(loader)
    assert epochs_of(it) == [(10, 40)] * 3
    assert [s["lived"] for s in it.steps() if s["lived"] > 100] == []


@pytest.mark.parametrize("ahead", [iter, one_ahead, several_ahead, several_at_the_end])
def test_two_updates_a_batch_are_one_step_to_the_last(it, ahead):
    (one, first), (two, second) = made(it), made(it)
    loader = loader_of(it)
    for _ in range(2):
        for batch in ahead(loader):
            train_step(one, first, batch)
            train_step(two, second, batch)
    iter(loader)
    assert epochs_of(it) == [(6, 24)] * 2


class Repeating:
    """Timm's: the batch sampler is gone over for ever."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


class ForAllEpochs(torch.utils.data.DataLoader):
    """Timm's: one iterator serves all epochs, so that workers and what they have fetched stay."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = Repeating(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        return (next(self.iterator) for _ in range(len(self)))


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("ahead", [iter, one_ahead, several_ahead, several_at_the_end])
def test_where_nothing_tells_that_a_pass_is_over_its_last_steps_are_counted(it, ahead, kept, updates):
    """One iterator for all epochs, or one each that is left once its batches have been counted."""
    pairs = [made(it) for _ in range(updates)]
    loader, held_out = ForAllEpochs(Rows(it), batch_size=4) if kept else loader_of(it), loader_of(it, 16)
    for epoch in range(3):
        for batch in ahead(loader if kept else islice(loader, 6)):
            for model, optimizer in pairs:
                train_step(model, optimizer, batch)
        with torch.no_grad():
            for batch in held_out:
                pairs[0][0](batch)
        assert it.recorder.steps == 6 * (epoch + 1) - kept  # one that goes on ends its last step with the next batch
    assert {step["forward"] for step in it.steps()} - {10 * updates} <= ({40 + 10 * updates} if kept else set())
    it.probe.at_exit()
    assert it.recorder.steps == 18
    assert epochs_of(it) == ([(18, 72)] if kept else [(6, 24)] * 3)


def test_more_updates_of_one_batch_now_and_then_are_still_one_step(it):
    """A generator that is trained with each third batch, the last of a pass among them."""
    (one, first), (two, second) = made(it), made(it)
    loader = ForAllEpochs(Rows(it), batch_size=4)
    for _ in range(3):
        for n, batch in enumerate(one_ahead(loader)):
            train_step(one, first, batch)
            if n % 2 == 0:
                train_step(two, second, batch)
    it.probe.at_exit()
    assert it.recorder.steps <= 18


def test_all_batches_fetched_before_the_first_is_trained_on(it):
    """A script that loads once and trains on a list: steps go by forward, and nothing is said of waits and samples."""
    model, optimizer = made(it)
    batches = list(loader_of(it))
    for _ in range(3):
        for batch in batches:
            train_step(model, optimizer, batch)
    ticks = it.of("tick")
    assert it.recorder.steps == 17  # the one under way has no end yet
    assert {(t["samples"], t["wait_ns"]) for t in ticks} == {(None, None)}
    it.probe.at_exit()
    assert it.recorder.steps == 18
    assert it.roles() == {next(iter(it.roles())): "train"}


def test_all_batches_of_each_epoch_fetched_first(it):
    """Transformers where an epoch is shorter than an update: each epoch is one step, the first one too."""
    model, optimizer = made(it)
    loader = loader_of(it, 12)
    for _ in range(3):
        for batch in list(loader):
            model(batch).mean().backward()
        optimizer.step()
    iter(loader)
    assert epochs_of(it) == [(1, 12)] * 3
    assert it.recorder.epoch == 3


def test_a_look_over_the_training_data_is_no_epoch_and_ends_no_step(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    list(loader)  # mean and deviation, say
    for _ in range(2):
        for batch in loader:
            train_step(model, optimizer, batch)
        with torch.no_grad():
            for batch in one_ahead(loader):
                model(batch)
    iter(loader)
    assert epochs_of(it) == [(6, 24)] * 2
    assert it.recorder.steps == 12
    assert totals(it)[0] == 12


def test_an_update_after_the_loop_does_not_count_into_the_next_epoch(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    for _ in range(2):
        for batch in loader:
            train_step(model, optimizer, batch)
        it.spend(100)
        train_step(model, optimizer, torch.ones(4, 2))  # one more on something kept
    steps = it.of("tick")[-1]
    assert (steps["epoch"], steps["step_in_epoch"]) == (1, 6)  # no other has begun
    assert [e["steps"] for e in it.of("epoch")] == [6, 6]


def by_count(loader, held):
    """Lightning: it never meets the end, and holds the old iterator until it has the new one."""
    held[:] = [iter(loader)]
    return (next(held[0]) for _ in range(len(loader)))


def loops(it, loader):
    """How scripts go over ``loader`` in an epoch, or over others, by name."""
    held, other, turns = [], loader_of(it), [loader_of(it) for _ in range(3)]
    return {
        "plain": lambda epoch: loader,
        "one ahead": lambda epoch: one_ahead(loader),
        "several ahead": lambda epoch: several_ahead(loader),
        "fetched first": lambda epoch: list(loader),
        "counted": lambda epoch: by_count(loader, held),
        "made anew": lambda epoch: loader_of(it),
        "zipped": lambda epoch: (a for a, _ in zip(loader, other, strict=False)),
        "in turns": lambda epoch: turns[epoch],
    }


@pytest.mark.parametrize(
    "loop", ["plain", "one ahead", "several ahead", "fetched first", "counted", "made anew", "zipped", "in turns"]
)
def test_the_epoch_shown_is_the_one_trained_in_last_until_another_is(it, loop):
    """Also while something else is done after it, and when no other comes: three epochs are 0, 1 and 2."""
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 16)
    batches_of = loops(it, loader)[loop]

    def shown():
        ticks = it.of("tick")
        return (ticks[-1]["epoch"], ticks[-1]["step_in_epoch"]) if ticks else (0, 0)

    for epoch in range(3):
        before = shown()
        for batch in batches_of(epoch):
            assert shown() == before or shown()[0] == epoch
            train_step(model, optimizer, batch)
            assert shown()[0] == epoch
            before = None
        with torch.no_grad():
            for batch in held_out:
                model(batch)
        look = iter(loader)
        next(look)  # at what it is trained on
        assert shown() == (epoch, 6)
        del look
    it.probe.at_exit()
    assert shown() == (2, 6)


@pytest.mark.parametrize("gap_ms", [0, 500])
def test_a_loop_that_counts_its_batches_ends_its_last_step_before_the_boundary(it, gap_ms):
    """Lightning: it never meets the end, and holds the old iterator until it has the new one."""
    model, optimizer = made(it)
    loader = loader_of(it)
    it.probe.asks.start({"at": [{"id": "at0", "when": "epoch", "n": 1, "knobs": {"num_workers": 1}}]})
    batches = None
    for _ in range(2):
        batches = iter(loader)
        for _ in range(len(loader)):
            train_step(model, optimizer, next(batches))
        it.spend(gap_ms)
    assert [(m["state"], m["step"]) for m in it.of("change")] == [("applying", 6), ("settling", 6)]
    marks = [mark for mark in it.recorder.done if mark.step is not None]
    assert [mark.setting.change for mark in marks] == []  # the beat has taken them
    assert [e["steps"] for e in it.of("epoch")] == [6]


def test_loaders_that_take_turns_count_on(it):
    """Small pictures first, then large ones: the second loader does not begin at epoch 0."""
    model, optimizer = made(it)
    seen = []
    for loader in (loader_of(it), loader_of(it, 16)):
        for _ in range(3):
            for batch in loader:
                train_step(model, optimizer, batch)
                seen.append(it.recorder.epoch)
    assert seen == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 4 + [4] * 4 + [5] * 4
    assert [record.epochs for record in it.probe.registry.records.values()] == [3, 3]


def test_a_schedule_counts_the_epochs_of_loaders_that_take_turns(it):
    model, optimizer = made(it)
    it.probe.asks.start({"at": [{"id": "at0", "when": "epoch", "n": 3, "knobs": {"num_workers": 1}}]})
    for loader in (loader_of(it), loader_of(it, 16)):
        for _ in range(2):
            for batch in loader:
                train_step(model, optimizer, batch)
    assert [(m["state"], m["step"]) for m in it.of("change")] == [("applying", 16), ("settling", 16)]


def test_zipped_loaders_make_one_epoch_of_one_pass(it):
    model, optimizer = made(it)
    left, right = loader_of(it), loader_of(it)
    for _ in range(3):
        for a, _ in zip(left, right, strict=False):
            train_step(model, optimizer, a)
    assert it.recorder.epoch == 3


def test_a_validation_loader_whose_iterator_is_held_for_ever_is_known_as_such_at_its_second(it):
    """Lightning looks at two validation batches before it trains: what is set from the start must not stay there."""
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 16)
    it.probe.asks.start({"set": {"num_workers": 1}})
    held, in_force = [], []
    for _ in range(3):
        held.append(iter(held_out))
        with torch.no_grad():
            for batch in islice(held[-1], 2):
                model(batch)
        in_force.append(it.probe.registry.record_of(held_out)[0].in_force.num_workers)
        for batch in loader:
            train_step(model, optimizer, batch)
    assert in_force == [1, 0, 0]
    assert list(it.roles().values()) == ["other", "train"]


# ---- names ----


def test_a_loader_made_for_each_evaluation_shares_four_names(it):
    model, optimizer = made(it)
    kept = []

    def another():
        kept.append(loader_of(it, 8))  # all are made by this line
        return kept[-1]

    loader = another()
    for _ in range(8):
        for batch in loader:
            train_step(model, optimizer, batch)
        with torch.no_grad():
            for batch in another():
                model(batch)
    roles = it.roles()
    place = next(iter(roles))
    assert roles == {place: "train", **{f"{place}#{n}": "other" for n in (2, 3, 4)}}
    assert it.of("epoch", loader=place)[-1]["epoch"] == 7


def test_beyond_four_twins_one_that_trains_keeps_its_name(it):
    model, optimizer = made(it)
    loaders = [loader_of(it, 8) for _ in range(6)]
    for loader in loaders:
        for batch in loader:
            train_step(model, optimizer, batch)
    assert len(it.roles()) == 6
    assert {record.epochs for record in it.probe.registry.records.values()} == {1}


@pytest.fixture
def wrapping(tmp_path):
    """An installed package that makes loaders anew of those it is given, as Accelerate does."""
    source = tmp_path / "site-packages" / "wrapping.py"
    source.parent.mkdir()
    source.write_text(
        "from torch.utils.data import BatchSampler, DataLoader\n"
        "class Skipping(BatchSampler):\n"
        "    def __init__(self, batch_sampler, count):\n"
        "        self.batch_sampler, self.count = batch_sampler, count\n"
        "    def __iter__(self):\n"
        "        return iter(list(self.batch_sampler)[self.count:])\n"
        "def prepare(loader):\n"
        "    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)\n"
        "def skip(loader, count):\n"
        "    return DataLoader(loader.dataset, batch_sampler=Skipping(loader.batch_sampler, count))\n"
        "def other(dataset):\n"
        "    return DataLoader(dataset, batch_size=4)\n"
    )
    spec = importlib.util.spec_from_file_location("wrapping", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_loader_that_a_package_makes_of_the_scripts_goes_by_the_scripts_line(it, wrapping):
    model, optimizer = made(it)
    raw = loader_of(it)
    place = next(iter(it.probe.registry._made.values())).place
    loader = wrapping.prepare(raw)
    held_out = wrapping.other(raw.dataset)
    for epoch in range(3):
        for batch in wrapping.skip(loader, 2) if epoch == 1 else loader:
            train_step(model, optimizer, batch)
        with torch.no_grad():
            for batch in held_out:
                model(batch)
    assert place.startswith("watched.py:")
    assert {name.split(":")[0]: role for name, role in it.roles().items()} == {
        "watched.py": "train", "test_epochs.py": "other",
    }  # fmt: skip
    assert list(it.probe.registry.records[place].samples_by_epoch) == [24, 16, 24]
    assert it.recorder.epoch == 3


def test_what_was_asked_of_a_loader_holds_for_what_is_made_of_it(it, wrapping):
    model, optimizer = made(it)
    loader = wrapping.prepare(loader_of(it))
    for epoch in range(5):
        if epoch == 1:
            it.ask("a", num_workers=1)
        if epoch == 3:
            it.ask("b", num_workers=2)
        for batch in wrapping.skip(loader, 1) if epoch == 2 else loader:
            train_step(model, optimizer, batch)
        (record,) = it.probe.registry.records.values()
        assert record.in_force.num_workers == [0, 1, 1, 2, 2][epoch]
    settled = it.of("change", state="settling")
    assert [(m["before"], m["in_force"]) for m in settled] == [
        ({"num_workers": 0}, {"num_workers": 1}), ({"num_workers": 1}, {"num_workers": 2}),
    ]  # fmt: skip


def test_a_script_may_share_one_batch_sampler_and_has_two_loaders_all_the_same(it):
    model, optimizer = made(it)
    first = loader_of(it)
    second = torch.utils.data.DataLoader(Rows(it), batch_sampler=first.batch_sampler)
    for batch, _ in zip(first, second, strict=False):
        train_step(model, optimizer, batch)
    assert len(it.roles()) == 2

"""A training that stops asking its loader for more: what its steps are then, and what its loader is said to be.

On the real torch, under a clock of our own. Each loop is one that scripts really have; those that only make many
updates of each batch must not be mistaken for it.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from watched import Rows, Slow, SlowSGD, loader_of, train_step

from cockpit.probe.unfed import LOOK_EVERY, PATIENCE


def made(it, **more):
    model = Slow(it, **more)
    return model, SlowSGD(it, model.parameters(), lr=0.1)


def by_call(model, optimizer, batch):
    train_step(model, optimizer, batch)


def by_forward(model, optimizer, batch):
    """A module whose ``forward`` is called directly, which nobody sees."""
    optimizer.zero_grad()
    model.forward(batch).mean().backward()
    optimizer.step()


def by_parts(model, optimizer, batch):
    """The model's parts are called, and it never is; the loss is a module, too."""
    optimizer.zero_grad()
    out = nn.functional.linear(nn.ReLU()(batch), model.inner.weight, model.inner.bias)
    nn.MSELoss()(out, torch.zeros_like(out)).backward()
    optimizer.step()


def by_two(model, optimizer, batch):
    """Accumulation: two backwards an update."""
    optimizer.zero_grad()
    model(batch).mean().backward()
    model(batch).mean().backward()
    optimizer.step()


def by_hand(model, optimizer, batch):
    """An update that nobody sees."""
    model.zero_grad()
    model(batch).mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def told(it):
    (loader,) = it.of("loaders")[-1]["loaders"]
    return loader, next(knob for knob in loader["knobs"] if knob["name"] == "num_workers")


# ---- nothing is fetched any more ----


@pytest.mark.parametrize("update", [by_call, by_forward, by_parts, by_two, by_hand])
@pytest.mark.parametrize("kept", [True, False])
def test_one_batch_for_ever_makes_a_step_of_each_update(it, update, kept):
    model, optimizer = made(it)
    loader = loader_of(it)
    batch = next(iter(loader))
    if not kept:
        del loader
    for _ in range(PATIENCE + 80):
        update(model, optimizer, batch)
    assert 78 <= it.recorder.steps <= 80
    assert len({step["lived"] for step in it.steps()[1:]}) == 1
    tick = it.of("tick")[-1]
    assert (tick["wait_ns"], tick["samples"], tick["queue"]) == (None, None, None)
    loader, workers = told(it)
    assert (loader["role"], loader["unfed"], workers["can"]) == ("train", True, False)
    assert workers["reason"] == "this training has fetched nothing since step 0: no loader feeds it"


@pytest.mark.parametrize("kept", [True, False])
def test_a_cycle_goes_on_counting_after_its_first_pass(it, kept):
    """``itertools.cycle`` keeps the batches of the first pass, and never asks the loader again."""
    model, optimizer = made(it)
    loader = loader_of(it)
    batches = itertools.cycle(loader)
    if not kept:
        del loader
    for batch in itertools.islice(batches, PATIENCE + 80):
        train_step(model, optimizer, batch)
    assert 78 <= it.recorder.steps <= PATIENCE + 79
    assert [(e["steps"], e["samples"]) for e in it.of("epoch")] == [(6, 24)]
    loader, _ = told(it)
    assert (loader["steps_per_epoch"], loader["boundaries"]) == (None, False)


def test_a_persistent_iterator_that_only_its_loader_holds_is_gone_and_one_in_a_loop_is_not(it):
    model, optimizer = made(it)
    loader = loader_of(it, num_workers=1, persistent_workers=True)
    for batch in loader:
        for _ in range(3 * PATIENCE):
            train_step(model, optimizer, batch)
    assert it.recorder.steps == 6
    assert it.probe.unfed.words is None
    batch = next(iter(loader))
    for _ in range(5 * PATIENCE):
        train_step(model, optimizer, batch)
    assert it.recorder.steps > 6 + 3 * PATIENCE
    said, _ = told(it)
    assert said["unfed"] and len(said["workers"]) == 1
    batches = iter(loader)
    for batch in batches:
        for _ in range(3 * PATIENCE):
            train_step(model, optimizer, batch)
    assert it.probe.unfed.words is None


def test_knobs_of_loaders_are_refused_there_and_those_of_the_training_land(it):
    model, optimizer = made(it)
    batch = next(iter(loader := loader_of(it)))
    it.ask("early", num_workers=1)
    for _ in range(2 * PATIENCE):
        train_step(model, optimizer, batch)
    it.beat()
    assert it.of("change", id="early") == []  # it may land yet
    it.ask("late", num_workers=1)
    it.ask("threads", threads=torch.get_num_threads() + 1)
    for _ in range(10 * PATIENCE):
        train_step(model, optimizer, batch)
    changes = {(m["id"], m["state"]): m["reason"] for m in it.of("change")}
    why = "this training has fetched nothing since step 0: no loader feeds it"
    assert changes["late", "refused"] == changes["early", "refused"] == why
    assert ("threads", "settling") in changes
    for batch in loader:
        train_step(model, optimizer, batch)
    it.ask("again", num_workers=1)
    for batch in loader:
        train_step(model, optimizer, batch)
    assert it.of("change", id="again", state="settling")
    torch.set_num_threads(torch.get_num_threads() - 1)


# ---- it comes back after all ----


def test_after_a_warm_up_on_one_batch_the_loader_tells_the_steps_again(it):
    """A learning-rate finder, or a check that one batch can be learnt by heart, and then the training."""
    model, optimizer = made(it)
    loader = loader_of(it)
    batch = next(iter(loader))
    for _ in range(2 * PATIENCE + 1):
        train_step(model, optimizer, batch)
    before = it.recorder.steps
    it.spend(500)
    for _ in range(2):
        for batch in loader:
            train_step(model, optimizer, batch)
    assert it.recorder.steps == before + 1 + 12  # the one under way ends with its update
    steps = it.steps()
    assert [s["step"] for s in steps] == list(range(it.recorder.steps))
    assert [s["samples"] for s in steps[-12:]] == [4] * 12
    assert {s["lived"] for s in steps[-12:]} == {17.0}
    assert max(s["lived"] for s in steps) < 100
    assert [(e["steps"], e["samples"]) for e in it.of("epoch")] == [(6, 24)] * 2
    loader, workers = told(it)
    assert (loader["unfed"], workers["can"], workers["reason"]) == (False, True, None)


def test_another_loader_takes_over_without_a_wait_counted_into_the_wrong_step(it):
    model, optimizer = made(it)
    batch = next(iter(loader_of(it)))
    for _ in range(2 * PATIENCE):
        train_step(model, optimizer, batch)
    for batch in torch.utils.data.DataLoader(Rows(it, 48), batch_size=4):
        train_step(model, optimizer, batch)
    assert list(it.roles().values()) == ["train", "train"]
    assert all(s["wait"] + s["start"] <= s["lived"] for s in it.steps())
    assert [s["samples"] for s in it.steps()[-10:]] == [4] * 10
    assert not any(loader["unfed"] for loader in it.of("loaders")[-1]["loaders"])


def test_a_loop_that_comes_back_for_more_is_given_the_time_it_takes(it):
    """Many updates on each ``next(iter(loader))``: known after the first, and each batch is one step from then on."""
    model, optimizer = made(it)
    loader = loader_of(it)
    counted = []
    for _ in range(6):
        batch = next(iter(loader))
        for _ in range(5 * PATIENCE):
            train_step(model, optimizer, batch)
        counted.append(it.recorder.steps)
    first, *rest = counted
    assert first > PATIENCE
    assert rest == [first + 1 + number for number in range(5)]
    assert [s["step"] for s in it.steps()] == list(range(it.recorder.steps))


# ---- loops that must not be mistaken for it ----


def probe_first(it, loader, train):
    shape = next(iter(loader)).shape
    assert shape[0] == 4
    for _ in range(2):
        for batch in loader:
            train(batch)


def each_anew(it, loader, train):
    for _ in range(12):
        train(next(iter(loader)))


def kept_iterator(it, loader, train):
    batches = iter(loader)
    for _ in range(2):
        for _ in range(6):
            train(next(batches))
        batches = iter(loader)


def long_validation(it, loader, train):
    held_out = loader_of(it, 40)
    model = Slow(it)
    for _ in range(2):
        for batch in loader:
            train(batch)
        with torch.no_grad():
            for _ in range(10):
                for batch in held_out:
                    model(batch)


@pytest.mark.parametrize("loop", [probe_first, kept_iterator, long_validation])
@pytest.mark.parametrize(
    ("models", "updates"),
    [(1, 1), (1, 5), (1, 3 * PATIENCE), (2, 1), (2, 5), pytest.param(2, 3 * PATIENCE, marks=pytest.mark.long)],
)
def test_many_updates_of_each_batch_are_one_step(it, loop, updates, models):
    """Inner loops, critics, epochs over a rollout: the iterator lives, so the loop will ask for more."""
    parts = [made(it) for _ in range(models)]

    def train(batch):
        for _ in range(updates):
            for model, optimizer in parts:
                train_step(model, optimizer, batch)

    loop(it, loader_of(it), train)
    it.probe.at_exit()
    assert it.recorder.steps == 12
    assert it.probe.unfed.words is None
    assert {loader["unfed"] for loader in it.of("loaders")[-1]["loaders"]} == {False}


@pytest.mark.parametrize("updates", [1, 5, 19])
def test_a_fresh_iterator_for_each_step_is_a_loop_over_a_loader(it, updates):
    model, optimizer = made(it)

    def train(batch):
        for _ in range(updates):
            train_step(model, optimizer, batch)

    each_anew(it, loader_of(it), train)
    assert it.recorder.steps == 11
    assert it.probe.unfed.words is None


def test_long_accumulation_and_lbfgs_of_a_batch_are_one_step_each(it):
    model, optimizer = made(it)
    for batch in loader_of(it):
        for _ in range(3 * PATIENCE):
            model(batch).mean().backward()
        optimizer.step()
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3 * PATIENCE)
    for batch in loader_of(it):

        def closure(batch=batch):
            lbfgs.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            return loss

        lbfgs.step(closure)
    assert it.recorder.steps == 12
    assert it.probe.unfed.words is None


@pytest.mark.parametrize("kept", [True, False])
def test_a_phase_without_a_loader_after_each_epoch_is_no_step_in_any_epoch(it, kept):
    """A linear probe, replay, a calibration: the first epoch counts as the others do."""
    model, optimizer = made(it)
    loader = loader_of(it, 2 * PATIENCE)
    per_epoch = []
    for _ in range(3):
        before = it.recorder.steps
        for batch in loader:
            train_step(model, optimizer, batch)
        for _ in range(PATIENCE + LOOK_EVERY // 2):
            train_step(model, optimizer, torch.ones(4, 2))
        if not kept:
            loader = loader_of(it, 2 * PATIENCE)
        per_epoch.append(it.recorder.steps - before)
    assert per_epoch[1:] == [per_epoch[1]] * 2 and abs(per_epoch[0] - per_epoch[1]) <= 1
    assert it.probe.unfed.words is None


# ---- no loader from the beginning ----


def test_a_loss_module_beside_a_model_that_is_never_called_tells_no_steps(it):
    """It is seen for as long as the first step is looked for, and never again."""
    model, optimizer = made(it)
    for _ in range(50):
        by_parts(model, optimizer, torch.ones(4, 2))
    assert it.recorder.steps == 49
    assert it.of("tick")[-1]["forward_ns"] is None


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_validation_loader_does_not_train_where_the_training_makes_its_own_batches(it, evaluated):
    model, optimizer = made(it)
    held_out = loader_of(it)
    for epoch in range(6):
        for _ in range(5):
            train_step(model, optimizer, torch.ones(4, 2))
        if evaluated or epoch:
            with torch.no_grad():
                for batch in held_out:
                    model(batch)
    assert list(it.roles().values()) == ["other"]
    assert it.of("epoch") == []
    assert it.recorder.steps == 29

"""What a step is, what its phases are, and what an epoch is: on the real torch, under a clock of our own."""

from __future__ import annotations

import contextlib
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from watched import Rows, Slow, SlowSGD, Stream, loader_of, train_step


def made(it, **more):
    model = Slow(it, **more)
    return model, SlowSGD(it, model.parameters(), lr=0.1)


def test_a_plain_step_is_timed_by_phase_and_its_samples_counted(it):
    model, optimizer = made(it)
    for batch in loader_of(it):
        it.spend(2)
        train_step(model, optimizer, batch)
    steps = it.steps()
    assert [s["step"] for s in steps] == list(range(6))
    first, *rest = steps
    assert first == {"lived": 19.0, "wait": 0.0, "start": 4.0, "forward": 10.0, "backward": 0.0, "optimizer": 3.0,
                     "samples": 4, "step": 0}  # fmt: skip
    for number, step in enumerate(rest, 1):
        assert step == {**first, "start": 0.0, "wait": 4.0, "step": number}


def test_other_is_what_is_left_of_the_wall(it):
    model, optimizer = made(it)
    for batch in loader_of(it):
        it.spend(7)
        train_step(model, optimizer, batch)
    for step in it.steps():
        assert step["lived"] - sum(step[p] for p in ("wait", "start", "forward", "backward", "optimizer")) == 7.0


def test_gaps_between_epochs_belong_to_no_step_and_to_no_tick(it):
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 8)
    for _ in range(3):
        for batch in loader:
            train_step(model, optimizer, batch)
        it.of("tick")
        it.spend(500)
        with torch.no_grad():
            for batch in held_out:
                model(batch)
    assert [s["lived"] for s in it.steps()] == []  # the beats have taken them
    ticks = it.of("tick")
    assert sum(t["steps"] for t in ticks) == 18
    assert sum(t["wall_ns"] for t in ticks) / 1e6 == pytest.approx(18 * 17, abs=0.1)
    assert sum(t["samples"] for t in ticks) == 72
    assert sum(t["forward_ns"] for t in ticks) / 1e6 == pytest.approx(180, abs=0.1)
    assert list(it.roles().values()) == ["train", "other"]


def test_an_epoch_says_what_it_really_served(it):
    model, optimizer = made(it)
    loader = DataLoader(Rows(it, 22), batch_size=4)
    for _ in range(2):
        for batch in loader:
            train_step(model, optimizer, batch)
    epochs = it.of("epoch")
    assert [(e["epoch"], e["steps"], e["samples"]) for e in epochs] == [(0, 6, 22), (1, 6, 22)]
    assert epochs[0]["wall_ns"] / 1e6 == pytest.approx(22 + 6 * 13, abs=0.1)


def test_accumulation_makes_one_step_of_several_backwards(it):
    model, optimizer = made(it)
    for index, batch in enumerate(loader_of(it, 48)):
        model(batch).mean().backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    steps = it.steps()
    assert [s["samples"] for s in steps] == [16, 16, 16]
    assert [s["forward"] for s in steps] == [40.0, 40.0, 40.0]


def test_the_length_of_the_first_epoch_is_foreseen_only_where_each_batch_makes_a_step(it):
    model, optimizer = made(it)
    plain, accumulating = loader_of(it, 400), DataLoader(Rows(it, 400), batch_size=4)
    for loader, every in ((plain, 1), (accumulating, 4)):
        for index, batch in enumerate(loader):
            model(batch).mean().backward()
            if index % every == every - 1:
                optimizer.step()
            if index == 70:
                break
            it.beat()
    assert it.of("loaders")[-1]["loaders"][0]["steps_per_epoch"] == 71  # what it was in the end
    assert 100 in {message["loaders"][0]["steps_per_epoch"] for message in it.of("loaders")}
    assert {m["loaders"][1]["steps_per_epoch"] for m in it.of("loaders") if len(m["loaders"]) == 2} == {None, 17}


def test_an_optimizer_of_their_own_counts_by_backward(it):
    model = Slow(it)
    loader = loader_of(it, 24)
    for _ in range(2):
        for batch in loader:
            model(batch).mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
    assert len(it.steps()) == 12
    assert it.of("tick")[-1]["optimizer_steps"] is None


def test_a_gan_has_one_step_a_batch_and_two_optimizer_steps(it):
    one, first = made(it, ms=10)
    two, second = made(it, ms=5)
    for batch in loader_of(it):
        train_step(one, first, batch)
        train_step(two, second, batch)
    assert [s["forward"] for s in it.steps()] == [15.0] * 6
    assert it.recorder.optimizer_steps == 12


def test_zipped_loaders_both_train_and_both_waits_count(it):
    model, optimizer = made(it)
    left, right = loader_of(it), DataLoader(Rows(it, 48), batch_size=8)
    for a, _ in zip(left, right, strict=True):
        train_step(model, optimizer, a)
    assert list(it.roles().values()) == ["train", "train"]
    assert [(s["samples"], s["wait"]) for s in it.steps()[2:]] == [(12, 12.0)] * 4
    assert sorted((e["steps"], e["samples"]) for e in it.of("epoch")) == [(6, 24), (6, 48)]


def test_a_single_peek_at_another_loader_makes_no_training_loader(it):
    model, optimizer = made(it)
    loader, peeked = loader_of(it, 40), loader_of(it, 40)
    for index, batch in enumerate(loader):
        if index == 3:
            next(iter(peeked))
        train_step(model, optimizer, batch)
    assert list(it.roles().values()) == ["train", "other"]


def test_validation_inside_the_epoch_neither_ends_a_step_nor_trains(it):
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 8)
    for batch in loader:
        train_step(model, optimizer, batch)
        with torch.no_grad():
            for other in held_out:
                model(other)
    assert list(it.roles().values()) == ["train", "other"]
    assert [s["samples"] for s in it.steps()] == [4] * 6


def test_a_teacher_without_gradients_does_not_hide_the_training_loader(it):
    model, optimizer = made(it)
    teacher = Slow(it)
    for batch in loader_of(it):
        with torch.no_grad():
            teacher(batch)
        train_step(model, optimizer, batch)
    assert list(it.roles().values()) == ["train"]
    assert len(it.steps()) == 6


def test_break_leaves_no_gap_in_the_next_step_and_the_left_batch_in_none(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    for _ in range(3):
        for index, batch in enumerate(loader):
            if index == 4:
                break
            train_step(model, optimizer, batch)
        it.spend(300)
    assert [s["lived"] for s in it.steps()] == [17.0] * 12
    assert [(e["steps"], e["samples"]) for e in it.of("epoch")] == [(4, 20)] * 3


def test_break_after_the_update_ends_the_step_at_the_update(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    for _ in range(2):
        for index, batch in enumerate(loader):
            train_step(model, optimizer, batch)
            if index == 2:
                break
        it.spend(300)
    assert [s["lived"] for s in it.steps()] == [17.0] * 6


def test_an_iterator_kept_for_ever_and_started_again_at_its_end(it):
    model, optimizer = made(it)
    loader = loader_of(it, 12)
    batches = iter(loader)
    for _ in range(9):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        train_step(model, optimizer, batch)
    assert [s["samples"] for s in it.steps()] == [4] * 8
    assert [e["steps"] for e in it.of("epoch")] == [3, 3]


def test_a_fresh_iterator_for_every_step(it):
    model, optimizer = made(it)
    loader = loader_of(it)
    for _ in range(6):
        train_step(model, optimizer, next(iter(loader)))
    steps = it.steps()
    assert len(steps) == 5
    assert [s["samples"] for s in steps] == [4] * 5
    assert sum(s["lived"] for s in steps) == pytest.approx(5 * 17, abs=0.1)


def test_without_any_loader_a_step_runs_from_forward_to_forward(it):
    model, optimizer = made(it)
    data = torch.ones(4, 2)
    for _ in range(5):
        train_step(model, optimizer, data)
        it.spend(4)
    assert [s["lived"] for s in it.steps()] == [17.0] * 4
    tick = it.of("tick")[-1]
    assert tick["wait_ns"] is None and tick["samples"] is None


def test_without_loader_and_module_a_step_runs_from_backward_to_backward(it):
    weight = torch.ones(3, requires_grad=True)
    optimizer = SlowSGD(it, [weight], lr=0.1)
    for _ in range(5):
        it.spend(2)
        (weight * 2).sum().backward()
        optimizer.step()
    assert [s["lived"] for s in it.steps()] == [5.0] * 4


def test_read_ahead_by_another_thread_has_no_wait(it):
    import queue

    model, optimizer = made(it)
    loader, ready = loader_of(it), queue.Queue(2)

    def read():
        for batch in loader:
            ready.put(batch)
        ready.put(None)

    for _ in range(2):
        reader = threading.Thread(target=read)
        reader.start()
        while (batch := ready.get()) is not None:
            train_step(model, optimizer, batch)
        reader.join()
    tick = it.of("tick")[-1]
    assert tick["wait_ns"] is None and tick["wait_kind"] == "read_ahead"
    assert tick["steps"] >= 10
    assert it.of("loaders")[-1]["loaders"][0]["read_ahead"] is True
    assert [(e["samples"], e["steps"]) for e in it.of("epoch")] == [(24, 6), (24, 6)]


def test_training_in_another_thread_than_the_main_one(it):
    model, optimizer = made(it)

    def work():
        for batch in loader_of(it):
            train_step(model, optimizer, batch)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert [s["wait"] for s in it.steps()] == [0.0] + [4.0] * 5


def test_training_that_moves_to_another_thread_is_followed(it):
    model, optimizer = made(it)
    train_step(model, optimizer, torch.ones(2, 2))
    it.beat()

    def work():
        for batch in loader_of(it, 400):
            train_step(model, optimizer, batch)
            it.beat()

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert it.recorder.steps > 50
    assert not it.probe.roots.searching


def test_an_iterable_dataset_counts_what_came(it):
    model, optimizer = made(it)
    for batch in DataLoader(Stream(it, 10), batch_size=4):
        train_step(model, optimizer, batch)
    assert [s["samples"] for s in it.steps()] == [4, 4, 2]
    assert it.of("loaders")[-1]["loaders"][0]["kind"] == "iterable"


def test_unknown_sample_counts_are_none_not_zero(it):
    model, optimizer = made(it)
    loader = DataLoader(Rows(it, 12), batch_size=4, collate_fn=lambda rows: object(), batch_sampler=None)
    loader = DataLoader([object()] * 6, batch_size=None)
    for _ in loader:
        train_step(model, optimizer, torch.ones(1, 2))
    assert it.of("tick")[-1]["samples"] is None
    assert it.of("epoch")[0]["samples"] is None


def test_a_loader_inside_a_dataset_is_the_outer_ones_time(it):
    model, optimizer = made(it)

    class Nested(Rows):
        def __getitem__(self, index):
            return next(iter(DataLoader(Rows(self.it, 2), batch_size=2))).mean(0)

    for batch in DataLoader(Nested(it, 8), batch_size=4):
        train_step(model, optimizer, batch)
    roles = it.roles()
    assert sorted(roles.values()) == ["train", "unknown"]
    assert it.steps()[1]["wait"] == 8.0


def test_lbfgs_runs_the_closure_inside_the_optimizer_and_nothing_counts_twice(it):
    model = Slow(it)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    for batch in loader_of(it, 12):

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    for step in it.steps():
        assert step["forward"] >= 10.0
        assert sum(step[p] for p in ("wait", "start", "forward", "backward", "optimizer")) <= step["lived"] + 0.01


def test_an_optimizer_step_that_raises_is_no_update_and_the_next_one_is(it):
    model, optimizer = made(it)
    original, tries = torch.optim.SGD.step, []

    def sometimes(closure=None):
        tries.append(1)
        if len(tries) % 3 == 0:
            raise FloatingPointError("overflow")
        return original(optimizer, closure)

    failing = type("Failing", (SlowSGD,), {"step": lambda self, closure=None: sometimes(closure)})
    optimizer = failing(it, model.parameters(), lr=0.1)
    for batch in loader_of(it, 48):
        optimizer.zero_grad()
        model(batch).mean().backward()
        with contextlib.suppress(FloatingPointError):
            optimizer.step()
    assert it.recorder.optimizer_steps == 8
    assert [s["samples"] for s in it.steps()] == [4, 4, 8, 4, 8, 4, 8, 4]


def test_an_optimizer_inside_backward_is_the_optimizers_time(it):
    model = Slow(it)
    optimizers = {p: SlowSGD(it, [p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for batch in loader_of(it):
        model(batch).mean().backward()
    assert [(s["optimizer"], s["backward"]) for s in it.steps()] == [(6.0, 0.0)] * 6


def test_persistent_like_reuse_of_one_place_stays_one_loader(it):
    model, optimizer = made(it)
    for _ in range(3):
        loader = loader_of(it, 8)
        for batch in loader:
            train_step(model, optimizer, batch)
    assert len(it.roles()) == 1
    assert [e["epoch"] for e in it.of("epoch")] == [0, 1, 2]


def test_two_loaders_made_by_one_line_are_told_apart_in_the_order_they_were_made(it):
    model, optimizer = made(it)
    loaders = [loader_of(it, 8) for _ in range(2)]
    for batch in loaders[1]:
        model(batch)
    for batch in loaders[0]:
        train_step(model, optimizer, batch)
    (first, role), (second, other) = sorted(it.roles().items())
    assert second == first + "#2" and (role, other) == ("train", "other")


def test_nothing_of_the_script_is_kept_alive(it):
    model, optimizer = made(it)
    loader = loader_of(it, 8)
    for batch in loader:
        train_step(model, optimizer, batch)
    it.beat()
    gone = [weakref.ref(loader), weakref.ref(loader.dataset), weakref.ref(model)]
    del loader, model, optimizer, batch
    assert [reference() for reference in gone] == [None, None, None]


def test_roots_are_the_outermost_trained_modules_only(it):
    model, optimizer = made(it)
    loss_of = nn.MSELoss()
    frozen = Slow(it)
    frozen.requires_grad_(False)
    for batch in loader_of(it):
        optimizer.zero_grad()
        loss_of(model(batch), frozen(batch)).backward()
        optimizer.step()
    occupied = [m for m in (model, model.inner, loss_of, frozen) if m.__dict__.get("_compiled_call_impl") is not None]
    assert occupied == [model]
    assert nn.Module.__call__ is it.probe.roots._original


def test_one_tuple_a_step_is_kept_and_never_more_than_a_bound(it):
    model, optimizer = made(it)
    for batch in DataLoader(Rows(it, 5000, ms=0), batch_size=1):
        train_step(model, optimizer, batch)
    assert it.recorder.steps == 5000
    assert len(it.recorder.done) == it.recorder.done.maxlen < 5000


@pytest.mark.parametrize("evaluates", [False, True])
def test_a_framework_that_reads_one_batch_ahead_loses_no_step_and_counts_no_gap(it, evaluates):
    model, optimizer = made(it)
    loader, held_out = loader_of(it), loader_of(it, 8)

    def ahead():
        batches = iter(loader)
        current = next(batches)
        for following in batches:
            yield current
            current = following
        yield current

    for _ in range(3):
        for batch in ahead():
            train_step(model, optimizer, batch)
        it.spend(500)
        if evaluates:
            with torch.no_grad():
                for batch in held_out:
                    model(batch)
    epochs = it.of("epoch")
    assert [(e["steps"], e["samples"]) for e in epochs] == [(6, 24)] * 3
    ticks = it.of("tick")
    assert sum(t["steps"] for t in ticks) == 18
    walls = [b["wall_ns"] for b in it.of("block")]
    assert all(wall < 700e6 for wall in walls)
    assert sum(t["wall_ns"] for t in ticks) / 1e6 == pytest.approx(3 * 6 * 17, abs=0.1)


def test_batches_skipped_before_the_first_step_are_not_in_it(it):
    model, optimizer = made(it)
    for index, batch in enumerate(loader_of(it, 40)):
        if index >= 5:
            train_step(model, optimizer, batch)
    assert [(s["samples"], s["lived"]) for s in it.steps()] == [(4, 17.0)] * 5


def test_under_data_parallel_only_the_wrapper_is_a_root(it):
    inner = Slow(it)
    model = nn.DataParallel(inner, device_ids=[])
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    for batch in loader_of(it):
        train_step(model, optimizer, batch)
    assert model.__dict__["_compiled_call_impl"] is not None
    assert inner.__dict__.get("_compiled_call_impl") is None
    assert [s["forward"] for s in it.steps()] == [10.0] * 6


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("with_loader", [True, False])
def test_checkpointing_computes_again_inside_backward_and_makes_no_steps_of_its_own(it, reentrant, with_loader):
    from torch.utils.checkpoint import checkpoint

    model, optimizer = made(it)
    batches = loader_of(it) if with_loader else [torch.ones(4, 2)] * 6
    for batch in batches:
        optimizer.zero_grad()
        checkpoint(model, batch.requires_grad_(), use_reentrant=reentrant).mean().backward()
        optimizer.step()
    steps = it.steps()
    assert len(steps) == (6 if with_loader else 5)
    for step in steps[reentrant:]:  # the first forward of a reentrant one runs without gradients, before any step
        assert step["forward"] == 20.0 and step["backward"] == 0.0
        assert sum(step[p] for p in ("wait", "start", "forward", "backward", "optimizer")) <= step["lived"] + 0.01


def test_a_wrapper_that_was_put_round_the_finder_stays_and_costs_no_counting(it, monkeypatch):
    model, optimizer = made(it)
    found = nn.Module.__call__
    monkeypatch.setattr(nn.Module, "__call__", lambda self, *a, **k: found(self, *a, **k))
    theirs = nn.Module.__call__
    for batch in loader_of(it):
        train_step(model, optimizer, batch)
    assert nn.Module.__call__ is theirs
    assert [s["forward"] for s in it.steps()] == [10.0] * 6


def test_the_search_for_roots_gives_up_where_nothing_trains_and_comes_back_when_something_does(it):
    model, optimizer = made(it)
    for _ in range(250):
        model(torch.ones(1, 2))
    assert not it.probe.roots.searching and nn.Module.__call__ is it.probe.roots._original
    for batch in loader_of(it):
        train_step(model, optimizer, batch)
    assert nn.Module.__call__ is it.probe.roots._original
    assert model.__dict__["_compiled_call_impl"] is not None
    assert [s["forward"] for s in it.steps()][1:] == [10.0] * 5


def test_a_loop_without_any_backward_says_so_at_its_next_epoch_and_not_at_the_end(it):
    model, loader = Slow(it), loader_of(it, 24)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)

    def loss(weights, batch):
        return torch.func.functional_call(model, weights, (batch,)).mean()

    for _ in range(5):  # 6 batches each
        it.ask("early", num_workers=2)
        for batch in loader:
            weights = {name: each.detach() for name, each in model.named_parameters()}
            grads = torch.func.grad(loss)(weights, batch)
            for name, each in model.named_parameters():
                each.grad = grads[name]
            optimizer.step()
    (told,) = [m for m in it.heard if m.get("state") == "refused"]
    assert "no backward() is seen" in told["reason"]


def test_an_optimizer_that_steps_before_all_else_refuses_nothing(it):
    model, loader = Slow(it), loader_of(it, 24)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    optimizer.step()
    it.ask("early", num_workers=0)
    for _ in range(2):
        for batch in loader:
            train_step(model, optimizer, batch)
    assert not [m for m in it.heard if m.get("state") == "refused"]

"""The batch size of one loader: same samples, same order, other cuts; refused where a loop would miss some."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from cockpit.probe import callers
from cockpit.probe.callers import asker_of, framework_of, is_bar
from cockpit.probe.groups import Refused
from cockpit.probe.kernels.batches import BatchSize, Facts
from cockpit.probe.kernels.control import Kernels

ROWS = 26
WHOLE = Facts(used_up=True)


def loader_of(**more) -> DataLoader:
    return DataLoader(TensorDataset(torch.arange(ROWS)), **{"batch_size": 4, "shuffle": True, **more})


def epoch(loader: DataLoader) -> list[list[int]]:
    return [batch.tolist() for (batch,) in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_same_samples_in_the_same_order_and_ten_times_back(workers, drop_last):
    more = {"num_workers": workers, "persistent_workers": workers > 0, "drop_last": drop_last}
    bare, loader = loader_of(**more), loader_of(**more)
    control = BatchSize(torch, loader)
    for turn in range(20 if workers == 0 else 4):
        size = 5 if turn % 2 else 4
        control.open(control.check(size, WHOLE))
        assert control.found() == loader.batch_size == size
        torch.manual_seed(turn)
        expected = epoch(bare)
        state = torch.get_rng_state()
        torch.manual_seed(turn)
        found = epoch(loader)
        assert torch.equal(state, torch.get_rng_state())
        assert len(found) == len(loader) and all(len(batch) == size for batch in found[:-1])
        flat, own = [i for batch in found for i in batch], [i for batch in expected for i in batch]
        length = ROWS - ROWS % 5 if drop_last and size == 5 else len(own)
        both = min(length, len(own))
        assert len(flat) == length and flat[:both] == own[:both]
        assert control.ended(len(flat), True) is None
        if size == 4:
            assert found == expected


@pytest.mark.parametrize(
    "facts, words",
    [
        (Facts(False), "left the last epoch"),
        (Facts(True, framework="lightning"), "lightning runs the loop"),
        (Facts(True, open_iterators=True), "still open"),
        (Facts(True, world=2), "several ranks"),
        (Facts(True, zipped=True), "several loaders"),
        (Facts(True, ends_after="its schedule ends"), "its schedule ends"),
    ],
)
def test_refused_where_the_loop_would_not_see_it_whole(facts, words):
    loader = loader_of()
    with pytest.raises(Refused, match=words):
        BatchSize(torch, loader).check(3, facts)
    assert loader.batch_sampler.batch_size == 4


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


class Own(BatchSampler):
    pass


def test_refused_where_the_loader_does_not_batch():
    data = TensorDataset(torch.arange(ROWS))
    for loader in (
        DataLoader(data, batch_size=None),
        DataLoader(data, batch_sampler=Own(SequentialSampler(data), 4, False)),
        DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, False)),
        DataLoader(Stream(), batch_size=2),
    ):
        control = BatchSize(torch, loader)
        assert control.whole and not control.refusal(WHOLE).can
        with pytest.raises(Refused):
            control.check(8, WHOLE)


def test_refused_with_the_scripts_own_sampler():
    class Mine(SequentialSampler):
        pass

    data = TensorDataset(torch.arange(ROWS))
    loader = DataLoader(data, batch_size=2, sampler=Mine(data))
    with pytest.raises(Refused, match="own sampler"):
        BatchSize(torch, loader).check(8, WHOLE)


def test_a_last_batch_of_one_and_one_that_is_never_filled():
    loader = loader_of()
    control = BatchSize(torch, loader)
    with pytest.raises(Refused, match="batch norm"):
        control.check(5, Facts(True, batch_norm=True))
    assert control.check(5, WHOLE) == 5 and control.check(6, Facts(True, batch_norm=True)) == 6
    dropping = loader_of(drop_last=True)
    control = BatchSize(torch, dropping)
    assert control.check(5, Facts(True, batch_norm=True)) == 5
    with pytest.raises(Refused, match="never fill one"):
        control.check(ROWS + 1, WHOLE)


@pytest.mark.parametrize("samples, used_up", [(13, True), (12, False), (13, False)])
def test_the_backstop_rolls_back(samples, used_up):
    loader = loader_of()
    control = BatchSize(torch, loader)
    control.open(control.check(8, WHOLE))
    reason = control.ended(samples, used_up)
    unseen = 26 - samples
    assert reason == "with batches of 8 the loop saw %d of 26 samples: %d were not seen" % (samples, unseen)
    assert control.found() == loader.batch_size == 4 and control.in_force == 4
    assert control.ended(samples, used_up) is None, "told once"


def test_only_the_first_epoch_under_a_size_is_judged():
    loader = loader_of()
    control = BatchSize(torch, loader)
    control.open(control.check(8, WHOLE))
    assert control.ended(ROWS, True) is None
    assert control.ended(3, False) is None and control.found() == 8


def test_the_scripts_own_size_can_always_be_had():
    loader = loader_of()
    control = BatchSize(torch, loader)
    control.open(control.check(8, WHOLE))
    assert control.check("script", Facts(False, framework="x")) == 4
    control.open(4)
    assert loader.batch_size == 4 and len(loader) == 7


def test_notes():
    loader = loader_of()
    control = BatchSize(torch, loader)
    assert "len(loader)" not in control.note(8, WHOLE)
    assert "len(loader)" in control.note(8, Facts(True, asked_length="train.py:3"))
    assert "batch norm" in control.note(5, Facts(True, batch_norm=True))


def test_who_iterates():
    ours = os.path.dirname(callers.__file__)
    code = "def run(): return framework_of('/torch/', ours)"

    def whose(path: str, outer_path: str = "/home/me/loops.py") -> str | None:
        names = {"framework_of": framework_of, "ours": ours}
        exec(compile(code, path, "exec"), names)
        outer = {"run": names["run"]}
        exec(compile("def run_it(): return run()", outer_path, "exec"), outer)
        exec(compile("def main(): return run_it()", "/home/me/train.py", "exec"), outer)
        return outer["main"]()

    assert whose("/home/me/train.py") is None
    assert whose("/v/site-packages/lightning/loops.py") == "lightning"
    assert whose("/v/site-packages/accelerate/loader.py", "/v/site-packages/transformers/trainer.py") == "transformers"
    assert whose("/v/site-packages/tqdm/std.py") is None
    assert whose("/v/site-packages/torchtune/loops.py") == "torchtune"
    assert whose("/torch/utils/data/dataloader.py") is None


def test_who_asks_for_a_length():
    ours = os.path.dirname(callers.__file__)

    def asker(path: str) -> str | None:
        names = {"asker_of": asker_of, "ours": ours}
        exec(compile("def run():\n\n    return asker_of('/torch/', ours)", path, "exec"), names)
        found = names["run"]()
        return found and found.words

    assert asker("/home/me/train.py") == "train.py:3"
    assert asker("/v/site-packages/tqdm/std.py") == "tqdm" and is_bar("tqdm")
    assert asker("/v/site-packages/transformers/trainer.py") == "transformers"
    assert asker("/torch/utils/data/dataloader.py") is None


def test_what_the_script_itself_sets_later_is_the_scripts_own():
    loader = loader_of()
    control = BatchSize(torch, loader)
    loader.batch_sampler.batch_size = 13
    control.look()
    assert (control.script, control.in_force) == (13, 13) and control.check("script", WHOLE) == 13


def test_what_is_dropped_is_said():
    control = BatchSize(torch, loader_of(drop_last=True))
    assert "batches of 8: 3 an epoch instead of 6; 2 samples dropped instead of 2" in control.note(8, WHOLE)
    control = BatchSize(torch, loader_of())
    assert "batches of 13: 2 an epoch instead of 7, the last of 13" in control.note(13, WHOLE)


class MadeUpGpu:
    """Of 10 GiB, of which batches of 8 have taken 4 at the most, 1 of them for good."""

    @staticmethod
    def memory_allocated() -> int:
        return 2**30

    max_memory_allocated = staticmethod(lambda: 4 * 2**30)
    memory_reserved = staticmethod(lambda: 5 * 2**30)
    mem_get_info = staticmethod(lambda: (5 * 2**30, 10 * 2**30))


def test_what_would_not_fit_into_the_gpu_is_foreseen():
    kernels = Kernels(torch, lambda: 0, lambda: 0)
    kernels.torch = SimpleNamespace(cuda=MadeUpGpu)
    kernels._roots = [SimpleNamespace(alive=True, device="cuda")]
    assert kernels.too_large(16, 8) is None, "7 of 10"
    assert kernels.too_large(24, 8) == "batches of 24 would need about 10.0 GiB of GPU memory, and there are 10.0"
    assert kernels.too_large(24, 24) is None, "it has carried them before"
    kernels._roots = [SimpleNamespace(alive=True, device="cpu")]
    assert kernels.too_large(24, 8) is None

"""How long what the swap makes lives: workers, threads, descriptors, iterators; and what is reported of them.

Real processes; liveness is read from /proc.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe import swap_scenes as scenes
from probe.swap_harness import Harness, children
from torch.utils.data import DataLoader

from cockpit.probe.swap import take_stall_ns

TWO = {"num_workers": 2}
KEPT = {"num_workers": 2, "persistent_workers": True}


@pytest.fixture(autouse=True)
def no_garbage() -> Iterator[None]:
    """Everything must end by being dropped, not by the collector; and nobody is left."""
    gc.collect()
    gc.disable()
    before = children()
    try:
        yield
        assert not children() - before
    finally:
        gc.enable()


def squares(**kw: Any) -> Any:
    return DataLoader(scenes.Squares(), batch_size=scenes.BATCH, **kw)


def rows(batches: Any) -> list[int]:
    return [int(row[0]) for batch in batches for row in batch]


ALL = list(range(scenes.SIZE))


def test_fifty_changes_leave_nothing_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def turn(times: int) -> None:
        for epoch in range(times):
            asked = {"num_workers": 1 + epoch % 2, "persistent_workers": epoch % 3 == 0}
            with Harness({0: asked}, {(0, 2): TWO, (0, 6): {"num_workers": 0}, (1, 1): {"num_workers": 1}}) as harness:
                assert rows(loader) == ALL and rows(loader) == ALL
                changes.extend(harness.swaps)

    loader, changes = squares(), []
    turn(1)  # whatever is opened once and kept is open now
    fds, threads = descriptors(), threading.active_count()
    turn(17)
    assert len(changes) >= 50 and not any(change.failed for change in changes)
    loader._iterator = None
    assert children() == set()
    assert descriptors() <= fds
    assert threading.active_count() <= threads


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("taken", [1, 4, 6])
def test_dropping_the_iterator_ends_all_workers_at_once(workers: int, taken: int) -> None:
    """Before the swap has been asked for anything, in the middle of the drain, and after it."""
    loader = squares(num_workers=workers)
    with Harness({}, {(0, 3): TWO}):
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        assert taken < 4 or len(children()) >= 2
        del iterator
        assert not children()


def test_an_iterator_at_whose_end_nothing_is_left_is_dropped_at_once() -> None:
    loader = squares()
    with Harness({0: TWO}, {(0, 4): {"num_workers": 1}}):
        iterator = iter(loader)
        chain = weakref.ref(iterator._next_data)
        assert rows(iterator) == ALL
        del iterator
        assert chain() is None


def test_old_workers_are_gone_once_they_have_drained() -> None:
    loader = squares(num_workers=2)
    with Harness({}, {(0, 2): {"num_workers": 1}}) as harness:
        iterator = iter(loader)
        next(iterator)
        old = children()
        next(iterator)
        assert harness.swaps == []
        next(iterator)
        assert len(children()) == 3
        for _ in range(harness.swaps[0].drain):
            next(iterator)
        (new,) = children()
        assert new not in old
        assert harness.control(loader).workers(iterator) == (new,)
        assert rows(iterator)[-1] == ALL[-1]


def test_a_loader_that_is_gone_can_still_be_swapped() -> None:
    with Harness({}, {(0, 3): TWO}) as harness:
        assert rows(iter(squares(shuffle=False))) == ALL
    assert harness.swaps[0].capacity == 4 and len(harness.pids) == 2


def test_two_iterators_alive_on_one_loader() -> None:
    for asked in (TWO, KEPT):
        with Harness({0: asked}, {(1, 4): {"num_workers": 1}}) as harness:
            loader = squares()
            pairs = list(zip(loader, loader, strict=True))
            assert rows(first for first, _ in pairs) == rows(second for _, second in pairs) == ALL
            assert len(harness.pids) == 5
            assert rows(loader) == ALL
            del loader, pairs


def test_persistent_workers_serve_epoch_after_epoch() -> None:
    loader = squares()
    with Harness({0: KEPT}) as harness:
        for _ in range(3):
            assert rows(loader) == ALL
        kept = children()
        assert harness.pids == kept and len(kept) == 2
        for _ in loader:  # left in its middle: what was begun must not appear in the next epoch
            break
        assert rows(loader) == ALL
        assert children() == kept
        harness.boundary[harness.epochs[loader] + 1] = {"num_workers": 1}
        assert rows(loader) == ALL
        assert len(children()) == 1 and not children() & kept
        harness.boundary[harness.epochs[loader] + 1] = {
            "num_workers": "script",
            "persistent_workers": "script",
        }
        assert rows(loader) == ALL
        assert not children()


def test_kept_workers_are_renewed_when_the_script_changes_its_dataset() -> None:
    class Staged(scenes.Squares):
        stage = 0

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.tensor([index + 100 * self.stage])

    dataset = Staged()
    dataset.stage = 0
    loader = DataLoader(dataset, batch_size=scenes.BATCH)
    with Harness({0: KEPT}) as harness:
        for stage in (0, 0, 1, 1):
            dataset.stage = stage
            assert rows(loader) == [index + 100 * stage for index in ALL]
        assert len(harness.pids) == 4
        assert "(stage)" in str(harness.control(loader).refusals()["persistent_workers"].reason)
        del loader


def test_a_framework_that_resets_the_loader_ends_kept_workers() -> None:
    loader = squares()
    with Harness({0: KEPT}):
        assert rows(loader) == ALL
        assert len(children()) == 2
        loader._iterator._shutdown_workers()
        loader._iterator = None
        assert not children()
        assert rows(loader) == ALL
    loader._iterator = None


def test_a_loader_with_kept_workers_can_be_pickled() -> None:
    loader = squares()
    with Harness({0: KEPT}):
        assert rows(loader) == ALL
        again = pickle.loads(pickle.dumps(loader))
    assert again._iterator is None and rows(again) == ALL
    del loader


def test_one_iterator_of_a_persistent_loader_stays_one() -> None:
    """torch hands out the same object again; a script may have kept it under another name."""
    loader = squares(num_workers=1, persistent_workers=True)
    with Harness({1: TWO, 2: {"num_workers": "script"}}, {(0, 3): {"num_workers": 2}}) as harness:
        first = iter(loader)
        assert rows(first) == ALL
        for _ in range(3):
            again = iter(loader)
            assert again is first
            assert rows(first) == ALL
        assert len(harness.swaps) == 1
        del loader, first, again


def test_leaving_by_hand_ends_workers() -> None:
    loader = squares(num_workers=1)
    with Harness({0: TWO}):
        iterator = iter(loader)
        next(iterator)
        iterator._shutdown_workers()
        assert not children()
        assert next(iterator, None) is None


def test_nothing_keeps_a_loader_alive() -> None:
    loader = squares()
    with Harness({0: TWO}, {(0, 2): {"num_workers": 1}}):
        assert rows(loader) == ALL
        gone = weakref.ref(loader)
        del loader
        assert gone() is None


def test_untouched_iterators_are_torchs_own() -> None:
    from torch.utils.data import dataloader

    with Harness({1: TWO, 2: {"num_workers": "script"}}, {(3, 2): TWO}) as harness:
        loader = squares()
        kinds = []
        for _ in range(5):
            iterator = iter(loader)
            kinds.append(type(iterator))
            assert rows(iterator) == ALL
            del iterator
        harness.groups.clear()
    own = dataloader._SingleProcessDataLoaderIter
    assert [kind is own for kind in kinds] == [True, False, True, True, False]
    assert "_next_data" not in vars(iter(loader))


def test_samples_are_those_of_the_batch_handed_out() -> None:
    loader = DataLoader(scenes.Squares(), batch_size=4)
    with Harness({}, {(0, 2): TWO, (1, 1): {"num_workers": 1, "in_order": False}}) as harness:
        list(loader)
        sizes = [size for size in harness.samples if isinstance(size, int)]
        assert sizes == [4, 4, 4, 4, 4, 2, 2]  # the call that ends the epoch leaves the last one standing
        harness.samples.clear()
        list(loader)
        assert sorted(size for size in harness.samples[:8] if size) == [2, 4, 4, 4, 4, 4, 4, 4]
    unbatched = DataLoader(scenes.Squares(), batch_size=None)
    with Harness({0: {"num_workers": 1}}) as harness:
        list(unbatched)
    assert set(harness.samples) == {None}


def test_what_is_in_force_is_counted_not_believed() -> None:
    loader = squares()
    with Harness({}, {(0, 2): {"num_workers": 2, "prefetch_factor": 3}}) as harness:
        control = harness.control(loader)
        iterator = iter(loader)
        assert control.in_force_now(iterator).num_workers == 0
        assert control.queue(iterator) is None
        for _ in range(3):
            next(iterator)
        found = control.in_force_now(iterator)
        assert found == control.in_force and found.num_workers == 2 and found.prefetch_factor == 3
        deadline = time.monotonic() + 10
        while control.queue(iterator) != (6, 6) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert control.queue(iterator) == (6, 6)
        os.kill(min(children()), 9)
        while control.in_force_now(iterator).num_workers == 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert control.in_force_now(iterator).num_workers == 1
        rest = rows(iterator)
        assert rest == ALL[9:]
        assert take_stall_ns(iterator) >= 0 and take_stall_ns(iterator) == 0


def test_a_swap_waits_until_the_last_one_has_drained() -> None:
    loader = squares(num_workers=1)
    with Harness() as harness:
        control = harness.control(loader)
        iterator = iter(loader)
        served = rows([next(iterator)])
        assert control.swap(iterator, control.plan({"num_workers": 2})) is not None
        assert control.swap(iterator, control.plan({"num_workers": 3})) is None
        served += rows([next(iterator), next(iterator), next(iterator)])
        assert control.swap(iterator, control.plan({"num_workers": 1})) is not None
        assert served + rows(iterator) == ALL


def test_what_is_in_force_already_is_not_built_again() -> None:
    loader = squares(num_workers=1)
    with Harness({}, {(0, 2): {"num_workers": 1}, (0, 4): TWO, (0, 8): TWO}) as harness:
        iterator = iter(loader)
        first = children()
        next(iterator), next(iterator), next(iterator)
        assert children() == first and "_next_data" not in vars(iterator)
        assert rows(iterator)[-1] == ALL[-1]
    assert [swap.capacity for swap in harness.swaps] == [2, 4, 4] and len(harness.pids) == 3


def test_another_thread_reads_ahead() -> None:
    """Where a script iterates in a thread of its own, swaps happen there, and so does what fails."""
    loader, served, killed = squares(), [], []

    def read() -> None:
        for at, batch in enumerate(loader):
            served.extend(rows([batch]))
            if at == 4:
                (victim, _) = harness.control(loader).workers(harness.newest())
                os.kill(victim, 9)
                killed.append(victim)

    with Harness({}, {(0, 2): TWO, (1, 3): {"num_workers": 1}}) as harness:
        reader = threading.Thread(target=read)
        reader.start()
        reader.join(timeout=60)
        assert served == ALL and str(killed[0]) in harness.notices[0].reason
        assert rows(loader) == ALL
    gc.collect()


def test_no_swap_for_the_last_few_batches() -> None:
    """All indices are with the old workers already: new ones would be started for nothing."""
    loader = squares(num_workers=1, prefetch_factor=3)
    with Harness({}, {(0, 8): TWO}) as harness:
        assert rows(loader) == ALL
        assert harness.swaps == []
    assert len(harness.pids) == 1


SCRIPT = """
import os, sys
sys.path[:0] = %r
import torch
from probe import swap_scenes as scenes
from probe.swap_harness import Harness
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.multiprocessing.set_start_method(sys.argv[2])
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH, num_workers=1, persistent_workers=True)
    other = DataLoader(scenes.Squares(), batch_size=scenes.BATCH)
    harness = Harness({0: {"num_workers": 2, "persistent_workers": True}}, {(0, 3): {"num_workers": 1}}).__enter__()
    assert len(list(loader)) == 10 and len(list(other)) == 10
    iterator, unfinished = iter(loader), iter(other)
    for _ in range(4):
        next(iterator), next(unfinished)
    print(len(harness.pids), *harness.pids)
    if sys.argv[1] == "raise":
        raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("how", "start"), [("end", "fork"), ("raise", "fork"), pytest.param("end", "spawn", marks=pytest.mark.long)]
)
def test_a_script_that_ends_in_the_middle_of_everything_ends_quietly(tmp_path: Path, how: str, start: str) -> None:
    tests = Path(__file__).parent.parent
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % [str(tests.parent), str(tests)])
    done = subprocess.run([sys.executable, str(script), how, start], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (3 if how == "raise" else 0, "")
    count, *pids = done.stdout.split()
    assert int(count) == len(pids) >= 6
    assert not [pid for pid in pids if Path("/proc", pid).exists()]

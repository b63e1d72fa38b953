"""A change that fails gives way to the settings before, and the training is served as if nothing had been asked.

Real faults: workers that cannot be started or are killed, descriptors that run out, datasets that fail in workers
only. And the other side: what is the script's own goes through to the script, once, unchanged.
"""

from __future__ import annotations

import array
import errno
import fcntl
import gc
import multiprocessing
import os
import resource
import signal
import termios
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe import swap_scenes as scenes
from probe.swap_harness import Harness, children
from torch.utils.data import DataLoader, get_worker_info

BATCHES = scenes.SIZE // scenes.BATCH


class OnlyAtHome(scenes.Squares):
    def __getitem__(self, index: int) -> torch.Tensor:
        if get_worker_info() is not None:
            raise KeyError("no connection in a worker")
        return super().__getitem__(index)


class OnlyInWorkers(scenes.Squares):
    def __getitem__(self, index: int) -> torch.Tensor:
        if get_worker_info() is None:
            raise KeyError("worker_init_fn has not run")
        return super().__getitem__(index)


class Handle(scenes.Squares):
    def __reduce__(self) -> Any:
        raise TypeError("a handle cannot be pickled")


class Slow(scenes.Squares):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return super().__getitem__(index)


class Broken(scenes.Squares):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 16:
            raise ValueError("broken file")
        return super().__getitem__(index)


def refuse(worker: int) -> None:
    raise OSError("no licence for worker %d" % worker)


def serve(loader: Any, epochs: int = 2) -> list[list[int]]:
    return [[int(row[0]) for batch in loader for row in batch] for _ in range(epochs)]


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """After each test there are no other child processes than before it."""
    before = children()
    yield
    gc.collect()  # pytest.raises keeps frames in cycles
    assert not children() - before


IN_ORDER = [list(range(scenes.SIZE))] * 2


@pytest.mark.parametrize("when", ["boundary", "now"])
def test_worker_init_fn_that_fails(when: str) -> None:
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH, worker_init_fn=refuse)
    ask = {"num_workers": 2}
    with Harness({1: ask} if when == "boundary" else {}, {(0, 3): ask} if when == "now" else {}) as harness:
        assert serve(loader) == IN_ORDER
        assert harness.control(loader).in_force.num_workers == 0
    (notice,) = harness.notices
    assert notice.failed.num_workers == 2 and notice.in_force.num_workers == 0
    assert "no licence for worker" in notice.reason


@pytest.mark.parametrize("in_order", [True, False])
def test_dataset_that_fails_in_workers_only(in_order: bool) -> None:
    loader = DataLoader(OnlyAtHome(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 2): {"num_workers": 3, "in_order": in_order}}) as harness:
        assert serve(loader) == IN_ORDER
    assert "no connection in a worker" in harness.notices[0].reason


def test_dataset_that_fails_without_workers() -> None:
    loader = DataLoader(OnlyInWorkers(), batch_size=scenes.BATCH, num_workers=1)
    with Harness({1: {"num_workers": 0}}, {(0, 2): {"num_workers": 0}}) as harness:
        assert serve(loader) == IN_ORDER
    assert [notice.in_force.num_workers for notice in harness.notices] == [1, 1]


def test_failing_the_same_way_before_and_after_is_the_scripts_own() -> None:
    loader = DataLoader(Broken(), batch_size=scenes.BATCH)
    seen: list[Any] = []
    with Harness({}, {(0, 4): {"num_workers": 2}}) as harness:
        iterator = iter(loader)
        while True:  # a script that skips what is broken
            try:
                seen.append([int(row[0]) for row in next(iterator)])
            except ValueError as error:
                seen.append(str(error).splitlines()[-1])
            except StopIteration:
                break
        assert harness.control(loader).in_force.num_workers == 2
    assert seen == [[at, at + 1, at + 2] if at != 15 else "broken file" for at in range(0, 30, 3)]
    assert not harness.notices and len(harness.pids) > 2  # the change was not to blame, and is in force again


def test_a_fault_long_after_the_change_is_the_scripts_own_and_costs_one_batch() -> None:
    class Late(scenes.Squares):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 28:
                raise ValueError("broken file")
            return super().__getitem__(index)

    loader = DataLoader(Late(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 1): {"num_workers": 1}}) as harness, pytest.raises(ValueError, match="broken file"):
        serve(loader)
    assert not harness.notices


def test_a_failing_sampler_is_the_scripts_own() -> None:
    def indices() -> Any:
        yield from range(14)
        raise LookupError("the sampler's own")

    class Sampler:
        def __iter__(self) -> Any:
            return indices()

    for now in ({(0, 1): {"num_workers": 2}}, {(0, 3): {"num_workers": 2}}, {(0, 4): {"num_workers": 1}}):
        loader = DataLoader(scenes.Squares(), sampler=Sampler(), batch_size=2)
        served = []
        with Harness({}, now) as harness, pytest.raises(LookupError, match="own"):
            for batch in loader:
                served.extend(int(row[0]) for row in batch)
        # bare, all 14 are served before it; reading ahead, torch raises at its earlier request
        assert served == list(range(len(served))) and not harness.notices


@pytest.mark.parametrize("at_fork", [1, 2])
@pytest.mark.parametrize("when", ["boundary", "now"])
def test_processes_run_out(monkeypatch: pytest.MonkeyPatch, at_fork: int, when: str) -> None:
    fork, count = os.fork, [0]

    def failing_fork() -> int:
        count[0] += 1
        if count[0] == at_fork:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", failing_fork)
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH)
    ask = {"num_workers": 2}
    with Harness({1: ask} if when == "boundary" else {}, {(0, 3): ask} if when == "now" else {}) as harness:
        assert serve(loader) == IN_ORDER
    assert "temporarily unavailable" in harness.notices[0].reason


def test_old_workers_go_on_when_new_ones_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH, num_workers=1)
    with Harness({}, {(0, 3): {"num_workers": 3}, (0, 6): {"num_workers": 2}}) as harness:
        fork = os.fork
        calls = [0]

        def failing_fork() -> int:
            calls[0] += 1
            if calls[0] == 4:  # 1 and the first 2 of 3 start
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return fork()

        monkeypatch.setattr(os, "fork", failing_fork)
        assert serve(loader, 1) == IN_ORDER[:1]
    assert [swap.failed for swap in harness.swaps] == [True, False]
    assert len(harness.notices) == 1 and "Cannot allocate" in harness.notices[0].reason


def test_descriptors_run_out() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 2): {"num_workers": 4}}) as harness:
        list(loader)  # whatever is opened once is open now
        harness.epochs.clear()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, hard))
            assert serve(loader) == IN_ORDER
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Too many open files" in harness.notices[0].reason


def test_what_cannot_be_pickled_for_spawned_workers() -> None:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        loader = DataLoader(Handle(), batch_size=scenes.BATCH)
        with Harness({}, {(0, 2): {"num_workers": 1}}) as harness, warnings.catch_warnings():
            warnings.simplefilter("error")  # a change that fails is told as one, not on the script's stderr
            assert serve(loader) == IN_ORDER
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert "pickle" in harness.notices[0].reason


@pytest.mark.parametrize(
    ("victim", "in_order", "counts", "by"),
    [
        (0, True, (3, 4), ": likely out of memory"),
        (0, False, (3, 3), " (by whom is not known)"),
        (1, True, (None, None), " (by whom is not known; the kernel does so where memory ends)"),
        (1, False, (3, 4), ": likely out of memory"),
    ],
)
def test_a_worker_killed_while_the_training_computes(
    victim: int, in_order: bool, counts: tuple[Any, Any], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch alone would raise inside the step; here the next fetch takes back what that worker had. What the kernel has
    counted meanwhile is what is said of it."""
    monkeypatch.setattr("cockpit.probe.sources.oom_kills", lambda: counts[0])
    monkeypatch.setattr("cockpit.probe.workers.oom_kills", lambda: counts[1])
    loader = DataLoader(Slow(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 1): {"num_workers": 2, "in_order": in_order}}) as harness:
        iterator, served = iter(loader), []
        for at in range(BATCHES):
            served.extend(int(row[0]) for row in next(iterator))
            if at == 3:
                pid = harness.control(loader).workers(iterator)[victim]
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + 5
                while "Z" not in Path("/proc/%d/stat" % pid).read_text() and time.monotonic() < deadline:
                    time.sleep(0.01)  # the training computes: SIGCHLD arrives here
        assert next(iterator, None) is None
    assert sorted(served) == IN_ORDER[0] and (served == IN_ORDER[0] or not in_order)
    (notice,) = harness.notices
    assert notice.reason == "a worker (pid %d) was killed by SIGKILL%s" % (pid, by)


class Blobs(scenes.Squares):
    """More than a pipe holds: a worker that nobody reads from is stuck in the middle of its message."""

    def __getitem__(self, index: int) -> Any:
        return index, bytes(1 << 20)


@pytest.mark.parametrize("read_meanwhile", [False, True])
def test_a_worker_killed_in_the_middle_of_a_message(read_meanwhile: bool) -> None:
    loader = DataLoader(Blobs(), batch_size=scenes.BATCH, collate_fn=list)
    with Harness({}, {(0, 1): {"num_workers": 1}}) as harness:
        iterator = iter(loader)
        served = [row[0] for _ in range(3) for row in next(iterator)]
        (pid,) = harness.control(loader).workers(iterator)
        deadline = time.monotonic() + 20
        results = iterator._next_data.live._worker_result_queue
        while lying_in(results) < 1 << 15 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert 1 << 15 <= lying_in(results) < 1 << 20
        if read_meanwhile:  # the fetch is in the message already when its writer dies
            os.kill(pid, signal.SIGSTOP)
            killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
            killer.start()
        else:
            os.kill(pid, signal.SIGKILL)
        served += [row[0] for batch in iterator for row in batch]
    assert served == IN_ORDER[0]
    assert str(pid) in harness.notices[0].reason


def lying_in(queue: Any) -> int:
    """Bytes that lie unread in the pipe of a multiprocessing queue."""
    count = array.array("i", [0])
    fcntl.ioctl(queue._reader.fileno(), termios.FIONREAD, count)
    return count[0]


def test_a_worker_killed_while_it_drains() -> None:
    loader = DataLoader(Slow(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 1): {"num_workers": 1, "prefetch_factor": 3}, (0, 4): {"num_workers": 2}}) as harness:
        iterator, served = iter(loader), []
        for at in range(BATCHES):
            if at == 4:
                (old,) = harness.control(loader).workers(iterator)
            served.extend(int(row[0]) for row in next(iterator))
            if at == 4:
                os.kill(old, signal.SIGKILL)
        assert next(iterator, None) is None
        assert harness.control(loader).in_force.num_workers == 2
    assert served == IN_ORDER[0]
    assert not harness.notices  # the change was not to blame


def test_persistent_workers_killed_between_epochs() -> None:
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH)
    with Harness({0: {"num_workers": 2, "persistent_workers": True}}) as harness:
        served = serve(loader, 1)
        first = set(harness.pids)
        os.kill(min(first), signal.SIGKILL)
        served += serve(loader, 1)
        assert harness.control(loader).in_force.num_workers == 2
    assert served == IN_ORDER
    assert not (harness.pids - first) & first and len(harness.pids) == 4


def test_a_worker_killed_under_the_scripts_own_settings_is_torchs_to_handle() -> None:
    loader = DataLoader(Slow(), batch_size=scenes.BATCH, num_workers=1)
    with Harness() as harness, pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly"):
        iterator = iter(loader)
        next(iterator)
        os.kill(harness.control(loader).workers(iterator)[0], signal.SIGKILL)
        list(iterator)
    assert not harness.notices


def test_workers_that_hang_from_their_start_are_given_up() -> None:
    class Hangs(scenes.Squares):
        def __getitem__(self, index: int) -> torch.Tensor:
            while get_worker_info() is not None:
                time.sleep(1)
            return super().__getitem__(index)

    loader = DataLoader(Hangs(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 2): {"num_workers": 2}}) as harness:
        harness.mechanism.patience_s = 1.0
        assert serve(loader, 1) == IN_ORDER[:1]
    assert "given nothing for" in harness.notices[0].reason


class Cached(scenes.Squares):
    """Keeps each sample in a file as people do: what is there is read. Fails in workers only, at one sample."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.folder / str(index)
        if not path.exists():
            with path.open("w") as file:
                for _ in range(20):
                    file.write("x")
                    file.flush()
                    time.sleep(0.01)
        if index == 3 * scenes.BATCH and get_worker_info() is not None:
            raise RuntimeError("no display in a worker")
        if path.read_text() != "x" * 20:
            raise ValueError("half a file")
        return super().__getitem__(index)


def test_workers_that_are_well_finish_what_they_have_in_hand(tmp_path: Path) -> None:
    loader = DataLoader(Cached(tmp_path), batch_size=scenes.BATCH)
    with Harness({}, {(0, 1): {"num_workers": 2}}) as harness:
        assert serve(loader, 1) == IN_ORDER[:1]
    assert harness.notices
    assert all(path.read_text() == "x" * 20 for path in tmp_path.iterdir())


def test_a_lock_that_a_dead_worker_keeps_hangs_nobody() -> None:
    """torch's event for the end of all workers has a lock: one that dies with it must not block the training."""
    loader = DataLoader(Slow(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 1): {"num_workers": 2}}) as harness:
        served, iterator = [], iter(loader)
        for step, batch in enumerate(iterator):
            served.extend(int(row[0]) for row in batch)
            if step == 3:  # what a worker does that is killed while it looks at the event
                source = iterator.__dict__["_next_data"].live
                source._workers_done_event._cond.acquire()
                os.kill(source.pids[0], signal.SIGKILL)
        assert served == IN_ORDER[0]
    assert harness.notices


def test_a_script_that_joins_all_its_children_does_not_wait_for_workers_of_ours() -> None:
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH)
    with Harness({}, {(0, 1): {"num_workers": 2, "persistent_workers": True}}):
        for epoch in range(2):
            for step, _ in enumerate(loader):
                if step == 4:
                    helper = multiprocessing.Process(target=abs, args=(epoch,))
                    helper.start()
                    for child in multiprocessing.active_children():
                        child.join(20)
                    assert not multiprocessing.active_children()
            assert len(children()) >= 2  # they live on, and are nobody's to wait for
    own = DataLoader(scenes.Squares(), batch_size=scenes.BATCH, num_workers=1)
    iterator = iter(own)
    assert len(multiprocessing.active_children()) == 1
    del iterator


def test_what_a_signal_handler_of_the_script_raises_is_not_swallowed() -> None:
    class Preempted(Exception):
        pass

    def preempt(*_: object) -> None:
        raise Preempted

    class Stuck(scenes.Squares):
        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(20 if get_worker_info() is not None else 0)
            return super().__getitem__(index)

    loader = DataLoader(Stuck(), batch_size=scenes.BATCH)
    former = signal.signal(signal.SIGALRM, preempt)
    try:
        with Harness({}, {(0, 1): {"num_workers": 1}}) as harness, pytest.raises(Preempted):
            iterator = iter(loader)
            next(iterator)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            next(iterator)
        assert not harness.notices
        for pid in children():
            os.kill(pid, signal.SIGKILL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    del iterator


class Handed:
    """A batch that cannot be taken out of its message, as where no file is left to open."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __reduce__(self) -> Any:
        return (out_of_files, ()) if get_worker_info() is not None else (Handed, (self.rows,))


def out_of_files() -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def in_a_row(rows: list[Any]) -> Any:
    batch = torch.stack(rows)
    return Handed(batch) if get_worker_info() is not None and int(batch[0][0]) >= 15 else batch


@pytest.mark.parametrize("persistent", [False, True])
def test_the_thread_that_pins_dies_quietly_and_all_it_had_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    for name, value in (("is_available", True), ("current_device_index", 0), ("set_device_index", None)):
        monkeypatch.setattr(torch.accelerator, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, device=None: self.clone())
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH, pin_memory=True, collate_fn=in_a_row)
    with Harness({}, {(0, 1): {"num_workers": 2, "persistent_workers": persistent}}) as harness:
        assert serve(loader) == IN_ORDER
    (notice,) = harness.notices
    assert "the thread that pins memory has died: OSError" in notice.reason and "ulimit -n" in notice.reason
    assert not printed


# ---- the volume ------------------------------------------------------------------------------------------------

CHANGES = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 9)),
    st.fixed_dictionaries(
        {"num_workers": st.integers(1, 3)},
        optional={"prefetch_factor": st.integers(1, 3), "persistent_workers": st.booleans()},
    ),
    min_size=1,
    max_size=3,
)
KILLS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 3)), max_size=4)


@settings(max_examples=3, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, kills=KILLS)
def test_workers_killed_at_random(changes: Any, kills: Any) -> None:
    _killing_example(changes, kills)


@pytest.mark.long
@pytest.mark.timeout(2400)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, kills=KILLS)
def test_many_workers_killed_at_random(changes: Any, kills: Any) -> None:
    _killing_example(changes, kills)


def _killing_example(changes: Any, kills: Any) -> None:
    loader = DataLoader(Slow(), batch_size=scenes.BATCH)
    with Harness({}, changes) as harness:
        for epoch in range(3):
            served: list[int] = []
            iterator = iter(loader)
            for at in range(BATCHES + 1):
                for _, _, which in sorted(kill for kill in kills if kill[:2] == (epoch, at)):
                    pids = harness.control(loader).workers(iterator)
                    if which < len(pids):
                        os.kill(pids[which], signal.SIGKILL)
                served.extend(int(row[0]) for row in next(iterator, ()))
            assert served == IN_ORDER[0]
            del iterator
    loader._iterator = None

"""CPU of a run's processes: real ones that burn it, recorded counts for what real ones cannot show on demand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cockpit.sensors.machine import Machine
from cockpit.sensors.members import Members
from cockpit.sensors.run_queue import RunQueue
from cockpit.sensors.tree import TreeCpu

BURN = "import time\nprint('up', flush=True)\nt = time.monotonic()\nwhile time.monotonic() - t < 60: pass"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"
PROC = Path("/proc")


@contextmanager
def started(code: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, **environ}
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def test_busy_and_idle_processes_are_told_apart_by_group() -> None:
    with started(BURN) as busy, started(SLEEP) as idle, started(BURN) as worker:
        tree = TreeCpu(PROC)
        tree.read(time.monotonic(), boot(), idle.pid, [worker.pid], [busy.pid])
        time.sleep(1.5)
        found = tree.read(time.monotonic(), boot(), idle.pid, [worker.pid], [busy.pid])
    assert found.main is not None and found.workers is not None and found.others is not None
    # however crowded the machine is, a burner gets many times what a sleeper does, and at most its one thread
    assert found.main < 0.02
    assert 3 * found.main + 0.02 < found.workers < 1.1
    assert 3 * found.main + 0.02 < found.others < 1.1


def test_two_burners_in_one_group_use_about_twice_one() -> None:
    """Each bound to a core of its own with the one it is compared to, so that load from outside hits both alike."""
    core = min(os.sched_getaffinity(0))
    bound = f"import os; os.sched_setaffinity(0, {{{core}}})\n" + BURN
    with ExitStack() as stack:
        one, *two = (stack.enter_context(started(bound)).pid for _ in range(3))
        tree = TreeCpu(PROC)
        tree.read(time.monotonic(), boot(), one, two, [])
        time.sleep(3.0)
        found = tree.read(time.monotonic(), boot(), one, two, [])
    assert found.main is not None and found.workers is not None
    assert 1.4 < found.workers / found.main < 2.8


def test_the_first_reading_says_nothing_and_empty_groups_say_zero_later() -> None:
    with started(BURN) as busy:
        tree = TreeCpu(PROC)
        first = tree.read(time.monotonic(), boot(), busy.pid, [], [])
        assert (first.main, first.workers, first.others) == (None, None, None)
        time.sleep(0.5)
        second = tree.read(time.monotonic(), boot(), busy.pid, [], [])
    assert second.main is not None and second.main > 0.05
    assert (second.workers, second.others) == (0.0, 0.0)


def test_pids_that_vanish_or_never_were_are_passed_over() -> None:
    with started(SLEEP) as main, started(SLEEP) as worker:
        tree = TreeCpu(PROC)
        tree.read(time.monotonic(), boot(), main.pid, [worker.pid, 2**22 + 7], [])
        worker.kill()
        worker.wait()
        time.sleep(0.2)
        found = tree.read(time.monotonic(), boot(), main.pid, [worker.pid], [])
    assert found.main is not None
    assert found.workers == 0.0
    main.wait()
    gone = tree.read(time.monotonic() + 1, boot(), main.pid, [worker.pid], [])
    assert gone.main is None


def test_marked_processes_and_descendants_belong_to_the_run_and_strangers_do_not(tmp_path: Path) -> None:
    mark = f"COCKPIT_RUN={tmp_path}"
    child = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={})\n"
        "print('up', flush=True); p.wait()"
    )
    with (
        started(SLEEP, COCKPIT_RUN=str(tmp_path)) as marked,
        started(SLEEP, COCKPIT_RUN=f"{tmp_path}/other") as other_run,
        started(SLEEP) as stranger,
        started(child) as main,
    ):
        found = Members(PROC, mark.encode(), ignore=set()).find(0.0, main.pid)
        descended = found - {marked.pid}
        for pid in descended - {other_run.pid, stranger.pid, main.pid}:
            os.kill(pid, 9)
        assert marked.pid in found
        assert not {other_run.pid, stranger.pid, main.pid} & found
        assert len(descended) == 1, "the unmarked child of the training is found by descent"


def test_members_are_looked_for_only_every_few_seconds(tmp_path: Path) -> None:
    members = Members(PROC, f"COCKPIT_RUN={tmp_path}".encode(), ignore=set(), rescan_s=3.0)
    assert members.find(10.0, None) == set()
    with started(SLEEP, COCKPIT_RUN=str(tmp_path)) as process:
        assert members.find(12.9, None) == set()
        assert members.find(13.1, None) == {process.pid}


def test_a_process_whose_mark_comes_with_exec_is_found_by_a_later_look(tmp_path: Path) -> None:
    proc = Recorded(tmp_path)
    proc.write(7, parent=1, started=100)
    members = Members(tmp_path, b"COCKPIT_RUN=/r", ignore=set(), rescan_s=1.0)
    assert members.find(0.0, None) == set()
    (tmp_path / "7/environ").write_bytes(b"A=1\0COCKPIT_RUN=/r\0")
    assert members.find(1.0, None) == {7}


def test_the_engine_itself_never_counts(tmp_path: Path) -> None:
    proc = Recorded(tmp_path)
    for pid, parent in ((7, 1), (8, 7), (9, 1)):
        proc.write(pid, parent=parent, started=100 + pid)
        (tmp_path / f"{pid}/environ").write_bytes(b"COCKPIT_RUN=/r\0" if pid != 8 else b"")
    assert Members(tmp_path, b"COCKPIT_RUN=/r", ignore={7}).find(0.0, None) == {9}


class Recorded:
    """A folder that looks like /proc, with counts in ticks (100 a second)."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc

    def write(
        self,
        pid: int,
        *,
        parent: int = 1,
        started: int = 0,
        own: int = 0,
        ended: int = 0,
        name: str = "python",
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [
            "S",
            str(parent),
            *["0"] * 9,
            str(own),
            "0",
            str(ended),
            "0",
            "20",
            "0",
            "1",
            "0",
            str(started),
        ]
        (folder / "stat").write_text(f"{pid} ({name}) " + " ".join(fields) + " 0 0 0\n")

    def remove(self, pid: int) -> None:
        (self.proc / str(pid) / "stat").unlink()


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Recorded, TreeCpu]:
    return Recorded(tmp_path), TreeCpu(tmp_path, ticks_per_s=100)


def test_what_a_worker_used_after_we_last_saw_it_is_credited_to_the_workers(
    recorded: tuple[Recorded, TreeCpu],
) -> None:
    proc, tree = recorded
    proc.write(10, started=1)
    proc.write(11, parent=10, started=2, own=500)
    tree.read(0.0, 100.0, 10, [11], [])
    proc.remove(11)
    proc.write(10, started=1, own=20, ended=540)  # the worker's whole life: 40 ticks more than we had seen
    found = tree.read(1.0, 101.0, 10, [], [])
    assert found.main == pytest.approx(0.2)
    assert found.workers == pytest.approx(0.4)
    assert found.unseen_s == 0.0


def test_a_child_that_is_waited_for_late_is_not_counted_twice(recorded: tuple[Recorded, TreeCpu]) -> None:
    proc, tree = recorded
    proc.write(10, started=1)
    proc.write(11, parent=10, started=2, own=500)
    tree.read(0.0, 100.0, 10, [11], [])
    proc.remove(11)
    between = tree.read(1.0, 101.0, 10, [], [])
    proc.write(10, started=1, ended=540)
    later = tree.read(2.0, 102.0, 10, [], [])
    assert between.workers == 0.0
    assert later.workers == pytest.approx(0.4)
    assert later.unseen_s == 0.0


def test_children_that_came_and_went_between_readings_stand_in_no_rate_but_are_not_lost(
    recorded: tuple[Recorded, TreeCpu],
) -> None:
    proc, tree = recorded
    proc.write(10, started=1)
    tree.read(0.0, 100.0, 10, [], [])
    proc.write(10, started=1, ended=2000)
    found = tree.read(1.0, 101.0, 10, [], [])
    assert (found.main, found.workers, found.others) == (0.0, 0.0, 0.0)
    assert found.unseen_s == pytest.approx(20.0)


def test_a_process_born_since_the_reading_before_counts_whole_and_an_older_one_not_yet(
    recorded: tuple[Recorded, TreeCpu],
) -> None:
    proc, tree = recorded
    proc.write(10, started=1)
    tree.read(0.0, 100.0, 10, [], [])
    proc.write(11, parent=10, started=10_050, own=30)
    proc.write(12, parent=10, started=9_000, own=900)
    found = tree.read(1.0, 101.0, 10, [11], [12])
    assert found.workers == pytest.approx(0.3)
    assert found.others is None, "used 9 s at some time, but nobody saw when"
    proc.write(12, parent=10, started=9_000, own=950)
    assert tree.read(2.0, 102.0, 10, [11], [12]).others == pytest.approx(0.5)


def test_a_pid_used_again_by_a_new_process_is_a_new_process(recorded: tuple[Recorded, TreeCpu]) -> None:
    proc, tree = recorded
    proc.write(10, started=1)
    proc.write(11, started=2, own=5_000)
    tree.read(0.0, 100.0, 10, [11], [])
    proc.write(11, started=10_010, own=10)
    assert tree.read(1.0, 101.0, 10, [11], []).workers == pytest.approx(0.1)


def test_a_new_loader_worker_is_known_by_its_name_before_the_probe_reports_it(
    recorded: tuple[Recorded, TreeCpu],
) -> None:
    proc, tree = recorded
    proc.write(10, started=1, name="odd) (name")
    tree.read(0.0, 100.0, 10, [], [])
    proc.write(11, parent=10, started=10_050, own=30, name="pt_data_worker")
    found = tree.read(1.0, 101.0, 10, [], [11])
    assert (found.main, found.workers, found.others) == (0.0, pytest.approx(0.3), 0.0)
    assert found.worker_pids == (11,)


LOADER = """
import time
from torch.utils.data import DataLoader

class Busy:
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        return index

if __name__ == "__main__":
    iterator = iter(DataLoader(Busy(), batch_size=10**3, num_workers=2))
    print("up", flush=True)
    time.sleep(60)
"""


def test_real_loader_workers_are_told_from_the_main_process_without_a_probe() -> None:
    with started(LOADER) as process:
        machine = Machine()
        machine.read(time.monotonic(), process.pid, ())
        time.sleep(1.5)
        found = machine.read(time.monotonic(), process.pid, ())
        for pid in Members(PROC, None, ignore=set()).find(0.0, process.pid):
            os.kill(pid, 9)
    assert found.cpu_main is not None and found.cpu_workers is not None
    assert found.cpu_workers > 3 * found.cpu_main + 0.02
    assert found.cpu_others == 0.0


def test_processes_that_share_a_core_wait_for_it() -> None:
    core = min(os.sched_getaffinity(0))
    bound = f"import os; os.sched_setaffinity(0, {{{core}}})\n" + BURN
    with started(bound) as one, started(bound) as two, started(SLEEP) as idle:
        crowd, alone = RunQueue(PROC), RunQueue(PROC)
        assert crowd.read([one.pid, two.pid]) is None
        assert alone.read([idle.pid, 2**22 + 7]) is None
        time.sleep(1.5)
        share = crowd.read([one.pid, two.pid])
        assert share is not None and share > 0.3
        assert alone.read([idle.pid]) is not None


def test_a_machine_that_has_no_proc_measures_nothing(tmp_path: Path) -> None:
    machine = Machine("COCKPIT_RUN=/r", root=tmp_path)
    for now_s in (0.0, 1.0):
        reading = machine.read(now_s, 2**22 + 7, [])
    assert (reading.cpu_main, reading.cpu_machine, reading.run_queue_share) == (None, None, None)
    assert (reading.limit, reading.fds_open, reading.shm_free_bytes) == (None, None, None)


def boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_run_queue_share_of_recorded_counts(tmp_path: Path) -> None:
    queue = RunQueue(tmp_path)
    for pid, counts in ((7, "1000 500 3"), (8, "0 0 0"), (9, "900 900 9")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "schedstat").write_text(counts + "\n")
    assert queue.read([7, 8, 9]) is None
    (tmp_path / "7/schedstat").write_text("1300 600 4\n")
    (tmp_path / "9/schedstat").write_text("5 5 1\n")  # the pid of another process by now
    assert queue.read([7, 8, 9]) == pytest.approx(0.25)
    assert queue.read([7, 8]) == 0.0

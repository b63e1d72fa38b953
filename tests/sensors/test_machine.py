"""One reading of the machine: the real one with a real busy process, recorded core counts, and the scripted one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cockpit.sensors.cores import Cores, parse_cores
from cockpit.sensors.limits import CpuLimit
from cockpit.sensors.machine import Machine, MachineReader, MachineReading
from cockpit.sensors.scripted import ScriptedMachine


def test_a_real_training_with_a_helper_is_read_whole(tmp_path: Path) -> None:
    """A process that burns CPU and starts a marked, busy helper: both seen, each where it belongs."""
    code = (
        "import subprocess, sys, time\n"
        "burn = 'import time; t = time.monotonic()\\nwhile time.monotonic() - t < 60: pass'\n"
        "p = subprocess.Popen([sys.executable, '-c', burn])\n"
        "print('up', flush=True)\n"
        "try:\n"
        "    sys.stdin.read()\n"
        "finally:\n"
        "    p.kill()\n"
    )
    environ = {**os.environ, "COCKPIT_RUN": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        machine: MachineReader = Machine(f"COCKPIT_RUN={tmp_path}")
        first = machine.read(time.monotonic(), process.pid, ())
        time.sleep(1.5)
        second = machine.read(time.monotonic(), process.pid, ())
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        third = machine.read(time.monotonic() + 11, process.pid, ())  # late enough to ask for limits anew
    assert (first.span_s, first.cpu_main, first.cpu_others, first.cpu_machine) == (None, None, None, None)
    assert first.cores_busy == ()
    assert first.limit is not None and first.limit.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert second.span_s is not None and second.span_s >= 1.5
    assert second.cpu_main is not None and second.cpu_main < 0.1
    assert second.cpu_others is not None and 0.1 < second.cpu_others < 1.1
    assert second.cpu_workers == 0.0
    # the whole machine is at least as busy as the one process (counted by another part of the kernel: a little apart)
    assert second.cpu_machine is not None and second.cpu_machine > 0.8 * second.cpu_others
    assert len(second.cores_busy) == len(first.limit.cores)
    assert all(0 <= busy <= 1 for busy in second.cores_busy)
    assert second.fds_open is not None and second.fds_open >= 3
    assert third.cpu_main is None
    assert third.limit == second.limit


def test_asked_again_too_soon_it_gives_the_reading_before() -> None:
    machine = Machine()
    first = machine.read(100.0, os.getpid(), ())
    assert machine.read(100.05, os.getpid(), ()) is first
    assert machine.read(100.5, os.getpid(), ()).span_s == pytest.approx(0.5)


def test_another_training_starts_anew() -> None:
    machine = Machine()
    machine.read(100.0, None, ())
    before = machine.read(101.0, None, ())
    assert before.limit is None and before.cpu_main is None and before.cpu_workers is None
    assert machine.read(102.0, os.getpid(), ()).span_s is None


def test_a_clock_that_steps_back_measures_nothing_once() -> None:
    machine = Machine()
    machine.read(100.0, os.getpid(), ())
    back = machine.read(50.0, os.getpid(), ())
    assert (back.span_s, back.cpu_main) == (None, None)
    assert machine.read(51.0, os.getpid(), ()).span_s == pytest.approx(1.0)


#        user nice system idle iowait irq softirq steal guest guest_nice
BEFORE = "cpu  9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu3 100 0 0 900 0 0 0 0 0 0\nintr 1 2 3\n"
AFTER = "cpu  9 9 9 9\ncpu0 150 0 60 820 70 0 0 0 50 0\ncpu3 100 0 0 1000 0 0 0 0 0 0\nintr 1 2 3\n"


def test_busy_shares_of_recorded_counts(tmp_path: Path) -> None:
    cores = Cores(tmp_path)
    (tmp_path / "stat").write_text(BEFORE)
    assert cores.read((0, 3)).machine is None
    (tmp_path / "stat").write_text(AFTER)
    found = cores.read((3, 0))
    # 60 busy of 100: waiting for the disk is not busy, guest time is not counted twice
    assert found.busy == (0.0, pytest.approx(0.6))
    assert found.machine == pytest.approx(0.6)


def test_a_core_that_has_no_line_leaves_all_unanswered_rather_than_misplaced(tmp_path: Path) -> None:
    cores = Cores(tmp_path)
    (tmp_path / "stat").write_text(BEFORE)
    cores.read((0, 1))
    (tmp_path / "stat").write_text(AFTER)
    assert cores.read((0, 1)).busy == ()


def test_broken_lines_are_passed_over() -> None:
    assert parse_cores("cpu0\ncpux 1 2 3 4 5\ncpu1 1 2 3 4 5 6 7 8\n\n") == {1: (27, 36)}


def test_the_scripted_machine_plays_its_list_and_notes_who_asked() -> None:
    limit = CpuLimit(4.0, "cgroup", (0, 1, 2, 3))
    machine = ScriptedMachine(
        [MachineReading(0.0, limit=limit), MachineReading(0.0, span_s=0.5, limit=limit, cpu_main=0.0)]
    )
    reader: MachineReader = machine
    played = [reader.read(float(at), 7, {8}) for at in range(3)]
    assert [reading.cpu_main for reading in played] == [None, 0.0, 0.0]
    assert [reading.at_s for reading in played] == [0.0, 1.0, 2.0]
    assert machine.asked[2] == (2.0, 7, (8,))


def test_the_scripted_machine_can_play_for_ever() -> None:
    machine = ScriptedMachine([MachineReading(0.0, cpu_main=0.1), MachineReading(0.0, cpu_main=0.9)], again=True)
    assert [machine.read(at, None, ()).cpu_main for at in (1.0, 2.0, 3.0)] == [0.1, 0.9, 0.1]
    with pytest.raises(ValueError, match="at least one"):
        ScriptedMachine([])

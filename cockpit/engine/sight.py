"""What the engine sees by itself: CPU, GPU and limits of the machine, and the training's output. Called by ``engine``.

Joins them with what the probe has told into one sample, twice a second. It never touches the training.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from cockpit.model.disk import DiskSeen
from cockpit.model.events import MachineSeen, OutputSeen, Sampled
from cockpit.model.gpu import GpuSampled
from cockpit.model.memory import MemorySeen
from cockpit.probe.memory_left import memory_left
from cockpit.sensors.gpu.reader import GpuReader
from cockpit.sensors.machine import MachineReader, MachineReading, free_bytes

from .hear import Ears
from .output import Output
from .record import Record
from .release import LOW_BYTES, release_oldest, room_for
from .rundir import RunDir

SAMPLE_S = 0.5
OUTPUT_S = 1.0
GPU_S = 10.0
"""Figures of the GPU that stay the same are told again so often, so that nobody takes them for old ones."""


class Sight:
    """``clock`` gives seconds since the epoch; ``now`` in calls is a clock that only goes on."""

    def __init__(
        self,
        run: RunDir,
        record: Record,
        ears: Ears,
        machine: MachineReader,
        gpu: GpuReader,
        clock: Callable[[], float],
    ) -> None:
        self._run = run
        self._record = record
        self._ears = ears
        self._machine = machine
        self._gpu = gpu
        self._clock = clock
        self._output = Output(run.output, record.state.output.bytes if record.state.output else 0)
        self._bounds_output = True
        self._sampled_s: float | None = None
        self._unseen_s = 0.0
        self._output_s: float | None = None
        self._gpu_told_s: float | None = None
        self._memory_told_s: float | None = None

    def next_s(self, now: float) -> float:
        """Seconds until the next sample is due."""
        return 0.0 if self._sampled_s is None else max(0.0, self._sampled_s + SAMPLE_S - now)

    def look(self, now: float, training: int) -> None:
        """Whatever is due now. ``training`` is the pid that the keeper started."""
        if self.next_s(now) == 0.0:
            self._sample(now, training)
            self._see_gpu(now)
        if self._output_s is None or now - self._output_s >= OUTPUT_S:
            self._output_s = now
            self._see_output()
            self._see_disk()

    def last_look(self, now: float, training: int) -> None:
        """The training is gone: what it said last still counts."""
        self._gpu.close()
        self._see_output()
        self._tell_disk()
        if self._ears.ticks.pending:
            self._sample(now, training)
        self._see_ranks(self._clock())

    def _sample(self, now: float, training: int) -> None:
        at_s = self._clock()
        span_s = SAMPLE_S if self._sampled_s is None else now - self._sampled_s
        self._sampled_s = now
        lead = self._ears.lead()
        main = lead.pid if lead is not None and lead.trains else training
        reading = self._machine.read(now, main, self._ears.worker_pids())
        self._see_machine(reading, at_s)
        self._see_memory(reading, at_s, main)
        self._see_ranks(at_s)
        unseen, self._unseen_s = reading.cpu_unseen_s != self._unseen_s, reading.cpu_unseen_s
        self._record.happen(
            Sampled(
                at_s,
                span_s,
                cpu_main=reading.cpu_main,
                cpu_workers=reading.cpu_workers,
                cpu_others=reading.cpu_others,
                cpu_machine=reading.cpu_machine,
                cores_busy=reading.cores_busy,
                cpu_unseen=unseen,
                **self._ears.ticks.take(at_s),
            )
        )

    def _see_machine(self, reading: MachineReading, at_s: float) -> None:
        limit, known = reading.limit, self._record.state.machine
        if limit is None:
            return
        if known is None or (known.cpus_usable, known.cores) != (round(limit.cpus, 6), limit.cores):
            self._record.happen(MachineSeen(at_s, limit.cpus, limit.limited_by, limit.cores))

    def _see_memory(self, reading: MachineReading, at_s: float, main: int) -> None:
        held = reading.memory
        if held is not None and held.at_s != self._memory_told_s:
            self._memory_told_s = held.at_s
            left, shm = memory_left(main), reading.shm_free_bytes
            self._record.happen(MemorySeen(at_s, held.used_bytes, held.workers_bytes, left, shm))

    def _see_ranks(self, at_s: float) -> None:
        for event in self._ears.look_again(self._record.state, at_s):
            self._record.happen(event)

    def _see_gpu(self, now: float) -> None:
        """Only what the training says it uses: a machine's other devices are somebody else's."""
        wanted = self._ears.devices()
        if not wanted and self._record.state.gpu is None:
            return
        reading, known = self._gpu.read(now, wanted), self._record.state.gpu
        before = (known.devices, known.trouble) if known else ((), None)
        due = self._gpu_told_s is None or now - self._gpu_told_s >= GPU_S
        if (reading.devices, reading.trouble) != before or (due and reading.at_s is not None):
            self._gpu_told_s = now
            # it was measured a moment ago: its own time, so that nobody takes it for newer than it is
            age_s = 0.0 if reading.at_s is None else max(0.0, now - reading.at_s)
            at_s = self._clock() - age_s
            self._record.happen(GpuSampled(at_s, reading.devices, reading.trouble, reading.driver))

    def _see_output(self) -> None:
        known = self._record.state.output
        if self._output.look() and (known is None or known.bytes != self._output.written):
            self._record.happen(OutputSeen(self._clock(), self._output.line, self._output.written))

    def _see_disk(self) -> None:
        """Who cannot write its output may end by that: make room as far as it is ours to make, and say what is left."""
        self._bound_output(free_bytes(self._run.data))
        self._tell_disk()

    def _tell_disk(self) -> None:
        free, known = free_bytes(self._run.data), self._record.state.disk_free_bytes
        if free is None or free >= (LOW_BYTES if known is None else 2 * LOW_BYTES):
            if known is not None:
                self._record.happen(DiskSeen(self._clock(), None))
        elif known is None or _mib_bits(free) != _mib_bits(known):
            self._record.happen(DiskSeen(self._clock(), free))

    def _bound_output(self, free: int | None) -> None:
        if not self._bounds_output:
            return
        try:
            release_oldest(self._run.output, *room_for(free))
        except FileNotFoundError:
            return
        except OSError as error:
            self._bounds_output = False
            why = f"cannot be kept short here ({error.strerror}): it holds all that was printed"
            sys.stderr.write(f"{self._run.output} {why}\n")


def _mib_bits(size: int) -> int:
    """So that what is left is told each time that it has halved, and not each second."""
    return (size // 2**20).bit_length()

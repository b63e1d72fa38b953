"""Scripted runs as events: the same every time, for tests, pictures and benches of the screen. No clock, no random
module: a small hash makes the noise, so that a picture is reproducible to the last dot."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from cockpit.history.fold import fold_all
from cockpit.history.state import State
from cockpit.model.events import (
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    EpochEnded,
    Event,
    KnobReport,
    LoaderInfo,
    LoadersSeen,
    MachineSeen,
    OutputSeen,
    ProbeConnected,
    ProcessStarted,
    RunStarted,
    Sampled,
)
from cockpit.model.gpu import GpuFigures, GpuSampled
from cockpit.model.knobs import Value
from cockpit.model.ranks import RankInfo, RanksSeen

BEGAN_S = 1_800_000_000.0
BATCH = 16
STEPS_PER_EPOCH = 782
PIN = "no accelerator is seen: pinned memory would only cost time"


def noise(seed: int, spread: float) -> float:
    """A steady number in ±spread for each seed."""
    return (zlib.crc32(str(seed).encode()) / 0xFFFFFFFF * 2.0 - 1.0) * spread


@dataclass(frozen=True)
class Speed:
    """Milliseconds of a step by phase, and who keeps the cores busy, under some number of workers."""

    wait: float
    start: float
    forward: float
    backward: float
    optimizer: float
    other: float
    main: float
    workers: float

    @property
    def step(self) -> float:
        return self.wait + self.start + self.forward + self.backward + self.optimizer + self.other


SPEEDS = {
    0: Speed(38.0, 0.0, 4.2, 7.6, 1.1, 0.6, 0.95, 0.0),
    1: Speed(24.5, 0.3, 4.3, 7.8, 1.1, 0.6, 0.55, 0.68),
    2: Speed(8.9, 0.4, 4.4, 7.9, 1.1, 0.6, 0.83, 1.21),
    4: Speed(0.6, 0.6, 4.6, 8.3, 1.2, 0.6, 0.96, 2.05),
    6: Speed(0.5, 0.9, 4.9, 8.8, 1.2, 0.7, 0.97, 2.3),
}


@dataclass
class Script:
    """A training under scripted changes; ``at``: second → knobs asked for. ``now_s`` moves on as events come out."""

    at: Mapping[float, Mapping[str, Value]] = field(default_factory=dict)
    cores: int = 4
    workers: int = 0
    script: str = "train.py"
    step: int = 0
    epoch: int = 0
    change: str | None = None
    changes: int = 0
    prefetch: int | None = None
    persistent: bool = False
    epochs: int = 0
    gpu: bool = False
    autocast: str = "off"
    compile: str = "off"

    def opening(self) -> Iterator[Event]:
        yield RunStarted(BEGAN_S, "train-3f", ("python", self.script), "/home/ada/project", self.script, {})
        yield ProcessStarted(BEGAN_S + 0.1, 4711)
        yield MachineSeen(BEGAN_S + 0.1, float(self.cores), "affinity", tuple(range(self.cores)))
        told = ("cuda", None, None, None, ("0a1b2c3d-aabbcc",)) if self.gpu else ()
        yield ProbeConnected(BEGAN_S + 1.4, 4711, "2.14.1", "3.11.9", *told)
        yield self.loaders(BEGAN_S + 1.5)

    def loaders(self, at_s: float) -> LoadersSeen:
        pids = tuple(range(4800, 4800 + self.workers))
        reports = (
            KnobReport("num_workers", 0, self.workers),
            KnobReport("prefetch_factor", None, self.prefetch, self.workers > 0, self.workers > 0,
                       None if self.workers else "needs workers"),
            KnobReport("pin_memory", False, False, False, False, PIN),
            KnobReport("persistent_workers", False, self.persistent, self.workers > 0, False,
                       "changes with the next epoch" if self.workers else "needs workers"),
            KnobReport("in_order", True, True),
            KnobReport("batch_size", BATCH, BATCH, True, False, "changes at the epoch boundary", "other steps an epoch "
                       "and another effective batch: compare samples/s, and mind the learning rate"),
        )  # fmt: skip
        info = LoaderInfo(
            "train.py:41", "train", "map", self.epochs, STEPS_PER_EPOCH, BATCH, reports, pids,
            (self.prefetch or 0) * self.workers, False, self.epochs > 0, (), 61.0 if self.epochs else None,
        )  # fmt: skip
        return LoadersSeen(at_s, (info,), self.kernels())

    def kernels(self) -> tuple[KnobReport, ...]:
        compiled = "not numerically neutral: random numbers inside the model come from another stream"
        return (
            KnobReport("threads", 2, 2),
            KnobReport("matmul", "highest", "highest", note=None if self.gpu else "no effect: this CPU multiplies "
                       "float32 exactly either way"),
            KnobReport("autocast", "off", self.autocast),
            KnobReport("compile", "off", self.compile, note=compiled if self.compile != "off" else None),
        )  # fmt: skip

    def speed(self) -> Speed:
        return SPEEDS[self.workers]

    def second(self, at_s: float) -> Iterator[Event]:
        """Events of one half second ending at ``at_s``."""
        speed = self.speed()
        jitter = 1.0 + noise(int(at_s * 2), 0.04)
        steps = max(1, round(500.0 / (speed.step * jitter)))
        wall = 0.5
        self.step += steps
        in_epoch = self.step - self.epoch * STEPS_PER_EPOCH
        if in_epoch >= STEPS_PER_EPOCH:
            self.epoch += 1
            self.epochs += 1
            in_epoch -= STEPS_PER_EPOCH
            took = STEPS_PER_EPOCH * speed.step / 1000.0
            yield EpochEnded(at_s, "train.py:41", self.epoch - 1, STEPS_PER_EPOCH, STEPS_PER_EPOCH * BATCH, took, 61.0)
            yield self.loaders(at_s)
        if self.gpu and int(at_s * 2) % 2 == 0:
            yield GpuSampled(at_s, (self.device(speed, int(at_s)),), None, "580.1")
        share = wall / speed.step
        yield Sampled(
            at_s, 0.5, self.step, self.epoch, in_epoch, self.step, steps, steps * BATCH,
            wait_s=max(0.0, speed.wait * share * jitter), start_s=speed.start * share, forward_s=speed.forward * share,
            backward_s=speed.backward * share * jitter, optimizer_s=speed.optimizer * share,
            wall_s=steps * speed.step * jitter / 1000.0, doing="forward", doing_for_s=0.004,
            queue=(min(8, 2 * self.workers) - (self.step % 2), 2 * self.workers) if self.workers else (0, 0),
            wait_kind="starved", cpu_main=speed.main * (1 + noise(int(at_s * 2) + 7, 0.05)),
            cpu_workers=speed.workers * (1 + noise(int(at_s * 2) + 3, 0.09)), cpu_others=0.04, cpu_machine=1.0,
            cores_busy=tuple(
                min(1.0, max(0.02, (speed.main + speed.workers) / self.cores + noise(int(at_s * 2) + 31 * core, 0.2)))
                for core in range(self.cores)
            ),
        )  # fmt: skip
        yield self.block(at_s, steps, jitter)

    def device(self, speed: Speed, seed: int) -> GpuFigures:
        """As busy as the model keeps it."""
        busy = (speed.forward + speed.backward + speed.optimizer) / speed.step
        active = max(0.0, min(1.0, 1.06 * busy + noise(seed, 0.04)))
        return GpuFigures(
            "GPU-0a1b2c3d-aabbcc", "NVIDIA H100 80GB HBM3", False, round(active, 2), 31 * 2**30, 80 * 2**30,
            120.0 + 480.0 * active, 700.0, round(38 + 26 * active), round(1980 - 225 * active), 1980, (), None, False,
            {}, "NVML",
        )  # fmt: skip

    def block(self, at_s: float, steps: int, jitter: float) -> BlockMeasured:
        speed, n = self.speed(), max(10, steps)
        return BlockMeasured(
            at_s, self.step, n, n * BATCH, n * speed.step * jitter / 1000.0,
            n * (speed.wait + speed.step * (jitter - 1.0)) / 1000.0 if speed.wait > 5 else n * speed.wait / 1000.0,
            n * speed.start / 1000.0, n * speed.forward / 1000.0, n * speed.backward / 1000.0,
            n * speed.optimizer / 1000.0, self.epoch, self.change, 2 * self.workers,
        )  # fmt: skip

    def land(self, at_s: float, knobs: Mapping[str, Value], id: str) -> Iterator[Event]:
        before: dict[str, Value | None] = {
            "num_workers": self.workers, "prefetch_factor": self.prefetch, "persistent_workers": self.persistent,
            "pin_memory": False, "in_order": True, "autocast": self.autocast, "compile": self.compile,
        }  # fmt: skip
        yield ChangeMoved(at_s, id, "applying", self.step)
        self.workers = int(knobs.get("num_workers", self.workers))
        self.prefetch = int(knobs.get("prefetch_factor", self.prefetch or 2)) if self.workers else None
        self.persistent = bool(knobs.get("persistent_workers", self.persistent))
        self.autocast = str(knobs.get("autocast", self.autocast))
        self.compile = str(knobs.get("compile", self.compile))
        self.change = id
        yield ChangeMoved(
            at_s + 0.08, id, "settling", self.step, 84.0, 0, 2 * self.workers,
            {name: before[name] for name in knobs}, dict(knobs),
        )  # fmt: skip
        yield self.loaders(at_s + 0.1)

    def events(self, until_s: float) -> Iterator[Event]:
        """All events of the first ``until_s`` seconds."""
        yield from self.opening()
        pending = sorted(self.at.items())
        half = 0
        while (half := half + 1) * 0.5 <= until_s:
            at_s = BEGAN_S + 1.5 + half * 0.5
            while pending and pending[0][0] <= half * 0.5:
                _, knobs = pending.pop(0)
                self.changes += 1
                yield ChangeAsked(at_s, f"c{self.changes}", dict(knobs), True)
                yield from self.land(at_s, knobs, f"c{self.changes}")
            yield from self.second(at_s)
            if half % 8 == 0:
                loss = 2.31 * math.exp(-self.step / 2400.0) + 0.31
                line = f"epoch {self.epoch} step {self.step % STEPS_PER_EPOCH:>3}  loss {loss:.3f}"
                yield OutputSeen(at_s, line, self.step * 40)


def steady(until_s: float = 128.0) -> tuple[State, float]:
    """The README's picture: 0 → 2 → 4 workers, one change queued; and the time it is looked at."""
    run = Script({46.0: {"num_workers": 2}, 88.0: {"num_workers": 4}})
    events = list(run.events(until_s))
    events.append(ChangeAsked(events[-1].at_s, "q1", {"persistent_workers": True}))
    return fold_all(events), events[-1].at_s + 0.2


def long(until_s: float = 214.0) -> tuple[State, float]:
    """A wider picture: three changes over three minutes, one queued."""
    run = Script({64.0: {"num_workers": 2}, 118.0: {"persistent_workers": True}, 162.0: {"num_workers": 4}})
    events = list(run.events(until_s))
    events.append(ChangeAsked(events[-1].at_s, "q1", {"in_order": False}))
    return fold_all(events), events[-1].at_s + 0.2


def on_a_gpu(until_s: float = 128.0) -> tuple[State, float]:
    """The same on a device, and autocast last."""
    at = {38.0: {"num_workers": 2}, 72.0: {"num_workers": 4}, 104.0: {"autocast": "bf16"}}
    events = list(Script(at, gpu=True).events(until_s))
    return fold_all(events), events[-1].at_s + 0.2


def two_ranks(until_s: float = 128.0) -> tuple[State, float]:
    """The same on two ranks, of which the other one is the slower."""
    state, now_s = steady(until_s)
    ranks = (RankInfo(0, 4711, state.step, 0.6, 1004.0), RankInfo(1, 4712, state.step, 3.4, 981.0))
    return fold_all([RanksSeen(state.at_s, ranks, 2)], state), now_s


def early(until_s: float = 9.0) -> tuple[State, float]:
    """Nothing changed yet."""
    events = list(Script().events(until_s))
    return fold_all(events), events[-1].at_s + 0.2


def with_phase(state: State, **fields: object) -> State:
    """The state with some fields replaced."""
    return replace(state, **fields)  # type: ignore[arg-type]

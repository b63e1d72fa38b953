"""Everything that can happen to a run, as frozen events: the one stream that live screens, journal and replay share.

The engine makes them (from what the probe says and what it reads itself); ``history.fold`` consumes them.
Units stand in the names; ``None`` means not measured and is never 0. Times ``at_s`` are seconds since the
epoch by the engine's clock. A field that is added later needs a default, so that old journals still read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union, get_args

from .compiled import CompiledSeen
from .crash import Crashed, HandoffSeen, IdentitySeen, Resumed, SessionSeen
from .disk import DiskSeen
from .gpu import GpuSampled
from .knobs import Value
from .memory import MemorySeen
from .missing import ProbeMissed
from .pause import PauseMoved
from .ranks import RanksSeen
from .stacks import StacksSeen


@dataclass(frozen=True)
class KnobReport:
    """One knob of one loader, or of the whole training, as the probe really finds it.

    ``script`` is what the script asked for, ``in_force`` what is true now (None: not known yet).
    ``can`` / ``can_now``: whether it can be changed at a boundary / at once; ``reason`` says why not. ``note`` is a
    truth that does not forbid, such as "changes the random stream"; of ``asked``, where that waits for its moment."""

    name: str
    script: Value | None
    in_force: Value | None
    can: bool = True
    can_now: bool = True
    reason: str | None = None
    note: str | None = None
    asked: Value | None = None


@dataclass(frozen=True)
class LoaderInfo:
    """A DataLoader, named by where the script made it (``train.py:41``; ``#2`` is added to later twins).

    ``role``: ``train``, ``other`` (validation, peeks) or ``unknown`` (not yet told apart).
    ``kind``: ``map`` or ``iterable``. ``boundaries``: whether it has ever begun a second iterator.
    ``capacity``: batches that may be ready ahead (prefetch × workers; 0 without workers). ``unfed``: it has fed this
    training, which goes on without asking it for more.
    """

    id: str
    role: str
    kind: str
    epochs: int = 0
    steps_per_epoch: int | None = None
    batch_size: int | None = None
    knobs: tuple[KnobReport, ...] = ()
    workers: tuple[int, ...] = ()
    capacity: int = 0
    read_ahead: bool = False
    boundaries: bool = False
    samples_by_epoch: tuple[int, ...] = ()
    epoch_start_ms: float | None = None
    unfed: bool = False


@dataclass(frozen=True)
class RunStarted:
    """What the engine was told to start. ``setup``, ``loaders``: asked for from the start, of all and by name;
    ``environment``: variables that the setup's file has set (None: taken away)."""

    at_s: float
    run: str
    argv: tuple[str, ...]
    cwd: str
    script: str
    setup: Mapping[str, Value]
    loaders: Mapping[str, Mapping[str, Value]] | None = None
    environment: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class ProcessStarted:
    """The keeper has started the training process."""

    at_s: float
    pid: int


@dataclass(frozen=True)
class MachineSeen:
    """CPUs the job really has and which limit said so: ``affinity``, ``cgroup`` or ``machine``."""

    at_s: float
    cpus_usable: float
    cpus_limited_by: str
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProbeConnected:
    """A process of the run has imported torch and said hello, or is back. ``devices``: those that it uses, by torch."""

    at_s: float
    pid: int
    torch: str
    python: str
    accelerator: str | None = None
    rank: int | None = None
    world: int | None = None
    off: Mapping[str, str] | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProbeLost:
    """That process's connection has closed."""

    at_s: float
    pid: int


@dataclass(frozen=True)
class LoadersSeen:
    """All loaders, and the knobs of the whole training (old journals told those with each loader that trains)."""

    at_s: float
    loaders: tuple[LoaderInfo, ...]
    kernels: tuple[KnobReport, ...] = ()


@dataclass(frozen=True)
class Sampled:
    """What the run was doing in about the last half second: for charts and live numbers, never for verdicts.

    Phase times are seconds spent in each phase during ``span_s`` of wall time (they sum to the time the
    training's thread was observed); ``steps`` and ``samples`` those that ended in it. CPU figures are in
    cores (1.0 = one core busy), split by who used it; ``cores_busy`` is 0..1 per usable core. ``cpu_unseen``:
    children of the run came and went in between, whose CPU is in none of its parts.
    """

    at_s: float
    span_s: float
    step: int | None = None
    epoch: int | None = None
    step_in_epoch: int | None = None
    optimizer_steps: int | None = None
    steps: int = 0
    samples: int | None = None
    wait_s: float | None = None
    start_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    wall_s: float | None = None
    doing: str | None = None
    doing_for_s: float | None = None
    queue: tuple[int, int] | None = None
    wait_kind: str | None = None
    cpu_main: float | None = None
    cpu_workers: float | None = None
    cpu_others: float | None = None
    cpu_machine: float | None = None
    cores_busy: tuple[float, ...] = ()
    cpu_unseen: bool = False


@dataclass(frozen=True)
class BlockMeasured:
    """At least ten consecutive whole steps under one setup: the unit that comparisons are built from.

    ``wall_s`` is wall time of these steps including loader starts, excluding gaps between epochs.
    ``change`` is the id of the newest change in force when they ran (None: none so far).
    """

    at_s: float
    step: int
    steps: int
    samples: int | None
    wall_s: float
    wait_s: float | None
    start_s: float
    forward_s: float | None
    backward_s: float
    optimizer_s: float
    epoch: int
    change: str | None = None
    capacity: int = 0


@dataclass(frozen=True)
class EpochEnded:
    """One iterator of a training loader is used up or left: what it served, its wall time without compiling, and
    whether the ``whole`` of it ran under one setting."""

    at_s: float
    loader: str
    epoch: int
    steps: int
    samples: int | None
    wall_s: float
    start_ms: float
    whole: bool = True


@dataclass(frozen=True)
class ChangeAsked:
    """Somebody asked for a change. ``loader`` None means all training loaders. ``origin``: ``person``,
    ``schedule``, ``undo``, ``redo``, ``crash``."""

    at_s: float
    id: str
    knobs: Mapping[str, Value]
    now: bool = False
    loader: str | None = None
    origin: str = "person"


@dataclass(frozen=True)
class ChangeMoved:
    """The probe reports on a change: ``applying``, ``settling`` (in force), ``rolled_back``, ``refused``, ``dropped``,
    ``ended`` (the training did, under it).

    ``drain``: batches the old workers had made or begun at the swap; ``capacity``: of the new loader. ``note``: what
    is to be known before it is applied (``queued`` tells that alone). ``before`` / ``in_force``: values as found.
    """

    at_s: float
    id: str
    state: str
    step: int = 0
    stall_ms: float | None = None
    drain: int = 0
    capacity: int = 0
    before: Mapping[str, Value | None] | None = None
    in_force: Mapping[str, Value | None] | None = None
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class BaselineSet:
    """A person said: what runs now is the baseline."""

    at_s: float


@dataclass(frozen=True)
class OutputSeen:
    """The newest line of the training's own output, cleaned, and how many bytes it has written in all."""

    at_s: float
    line: str
    bytes: int


@dataclass(frozen=True)
class SetupSaved:
    """The setup was written to a file."""

    at_s: float
    path: str


@dataclass(frozen=True)
class Stopping:
    """A soft stop was asked for; the training has until ``until_s``."""

    at_s: float
    until_s: float


@dataclass(frozen=True)
class TrainingEnded:
    """The training process is gone. ``exit_status`` is 128 + n for signal n, None where it was lost.

    ``survivors`` are processes of the run that outlived it and were left alone, as ``pid name``.
    """

    at_s: float
    exit_status: int | None
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventsDropped:
    """The probe's bounded queue overflowed: so many messages never reached us."""

    at_s: float
    count: int


Event = Union[
    RunStarted, ProcessStarted, MachineSeen, ProbeConnected, ProbeLost, RanksSeen, LoadersSeen, Sampled, GpuSampled,
    BlockMeasured, CompiledSeen, EpochEnded, ChangeAsked, ChangeMoved, BaselineSet, OutputSeen, SetupSaved, Stopping,
    StacksSeen, TrainingEnded, EventsDropped, ProbeMissed, DiskSeen, PauseMoved, SessionSeen, HandoffSeen, IdentitySeen,
    Crashed, Resumed, MemorySeen,
]  # fmt: skip
EVENTS: tuple[type, ...] = get_args(Event)

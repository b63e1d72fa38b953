"""All that is known about a run, as one frozen value: what ``fold`` makes and every screen, report and verb reads.

Bounded by construction: rings, segments and ledger have fixed sizes, so a fold of any length stays cheap and a
snapshot stays small. Nothing here computes; see ``fold``, ``status`` and ``analysis``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.model.compiled import CompiledSeen
from cockpit.model.crash import Crashed, HandoffSeen, SessionSeen
from cockpit.model.events import (
    BlockMeasured,
    EpochEnded,
    KnobReport,
    LoaderInfo,
    MachineSeen,
    OutputSeen,
    ProbeConnected,
    Sampled,
)
from cockpit.model.gpu import GpuSampled
from cockpit.model.knobs import Value
from cockpit.model.memory import MemorySeen
from cockpit.model.pause import PauseMoved
from cockpit.model.ranks import RanksSeen
from cockpit.model.stacks import StacksSeen

LEDGER_LONGEST = 200
EPOCHS_LONGEST = 64
RECENT_LONGEST = 12


@dataclass(frozen=True)
class Point:
    """One place on the charts' time axis. Shares are 0..1 of the training thread's time, CPU is in cores.

    ``weight`` counts the samples averaged into it. None: nothing was measured then (a gap, never a zero).
    ``gpu``: the share of time in which some kernel ran on the lead device.
    """

    at_s: float
    weight: int = 1
    model: float | None = None
    wait: float | None = None
    cpu: float | None = None
    samples_per_s: float | None = None
    gpu: float | None = None


@dataclass(frozen=True)
class Ring:
    """The newest ``longest`` points, one for each ``width_s`` seconds."""

    width_s: float
    longest: int
    points: tuple[Point, ...] = ()


RINGS = (Ring(0.5, 400), Ring(5.0, 400), Ring(60.0, 720))


@dataclass(frozen=True)
class Around:
    """Means over ``seconds`` of samples: ``cores`` that other programs kept busy, the share ``busy`` of the ``usable``
    ones; ``throttled``: the share of ``throttled_of`` looks at the devices in which one was held back."""

    seconds: float = 0.0
    cores: float = 0.0
    busy: float = 0.0
    usable: int = 0
    throttled_of: int = 0
    throttled: float = 0.0


@dataclass(frozen=True)
class Segment:
    """The blocks measured under one setup. ``change`` is what began it (None: as the run started).

    ``discard_steps``: steps still to be thrown away, since older workers made them. ``discard_total``: of how many.
    ``capacity``: batches that may be ready ahead. ``landed_s``: when it began. ``follows``: the change it replaced.
    ``seen``: blocks ever kept, of which ``blocks`` holds the newest.
    """

    change: str | None = None
    capacity: int = 0
    discard_steps: int = 0
    discard_total: int = 0
    landed_s: float | None = None
    blocks: tuple[BlockMeasured, ...] = ()
    cold: bool = False
    epoch_s: float | None = None
    follows: str | None = None
    seen: int = 0
    around: Around = Around()


@dataclass(frozen=True)
class Phases:
    """Mean milliseconds of a step by phase; None: not measured. ``step_ms`` is the whole step, ``samples`` how many
    it takes: only steps of equally many may be compared."""

    step_ms: float
    wait_ms: float | None
    start_ms: float
    forward_ms: float | None
    backward_ms: float
    optimizer_ms: float
    other_ms: float | None
    samples: float | None = None


@dataclass(frozen=True)
class Baseline:
    """What "before anything was changed" means: windows 2 … first change, or where a person said ``b``."""

    samples_per_s: float
    windows: int
    phases: Phases | None = None
    epoch_s: float | None = None
    by_person: bool = False


@dataclass(frozen=True)
class Flag:
    """Something beside a change that its figure may come from: a ``name`` that fits a badge, and the whole sentence."""

    name: str
    words: str


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: a change from its asking to its outcome, and what it gave.

    ``state``: queued, applying, settling, kept, rolled_back, refused, reverted, dropped, ended (the training did, under
    it and not as it should).
    ``change``: knob to (from, to) as found in force. Rates in samples/s. ``compiled_s``, ``graphs``, ``recompiles``:
    what torch compiled for it, None where nothing. ``as_script``: knobs that nobody had touched before it.
    ``flags``: what else changed around the training meanwhile, so that the figure may be its doing.
    ``note``: what was said of it before it was applied. ``stall_ms``: how long the training stood still for it in all.
    """

    id: str
    asked: Mapping[str, Value]
    asked_s: float
    now: bool = False
    loader: str | None = None
    origin: str = "person"
    state: str = "queued"
    state_s: float = 0.0
    landed_s: float | None = None
    at_step: int | None = None
    change: Mapping[str, tuple[Value | None, Value | None]] | None = None
    as_script: tuple[str, ...] = ()
    reason: str | None = None
    note: str | None = None
    stall_ms: float | None = None
    before_samples_per_s: float | None = None
    before_windows: int = 0
    after_samples_per_s: float | None = None
    after_windows: int = 0
    delta_pct: float | None = None
    interval_pct: tuple[float, float] | None = None
    verdict: str = "settling"
    flags: tuple[Flag, ...] = ()
    compiled_s: float | None = None
    graphs: int | None = None
    recompiles: int | None = None
    settled_steps: int = 0
    settle_steps: int = 0
    epoch_over: bool = False
    """Whether a whole epoch has passed since it landed, without which a batch size is never kept."""


@dataclass(frozen=True)
class Handoffs:
    """All that were tried in this run so far. ``spared``: some were due, and left out for what they would take."""

    tried: int = 0
    written: int = 0
    spent_s: float = 0.0
    spared: bool = False


@dataclass(frozen=True)
class State:
    """A run. ``phase``: starting, running, paused, stopping, ended, lost. ``probe``: waiting, connected, lost.

    ``probe_reason``: why no probe has spoken, where that is known.
    ``ranks``: processes that speak to us. ``team``: those that train, where there are or were several.
    ``stacks``: what each process has answered to the newest ``dump``.
    ``longest_s``: by what the training was doing, the longest that it was seen to take and come out of.
    ``pause``: the newest word on the newest pause; ``paused_s``: seconds of all that are over. ``idle_s``: seconds
    in which no process was there, between an end or a crash and the one that followed.
    ``recent``: samples in which steps ended, each with all that was sampled since the one before; ``stepping``: what
    was sampled since the newest of them.
    ``environment``: variables that were asked for and are in force: by name what they were when the run began, and are
    now (None: not set).
    ``session``: that the script has called ``cockpit.session``; ``handoff``: the newest that was written, and
    ``handoff_failed`` why a later one was not; ``handoffs``: what all took. ``identity``: variables by which a new
    process reports under the same name. ``crash``: the newest that nothing has followed yet; ``crashes``: all since a
    person last had it begin.
    ``leaving_s``: since when the script is through and the process ends, which may take its time.
    """

    run: str = ""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    script: str = ""
    setup: Mapping[str, Value] | None = None
    loader_setups: Mapping[str, Mapping[str, Value]] | None = None
    environment: Mapping[str, tuple[str | None, str | None]] | None = None
    phase: str = "starting"
    started_s: float | None = None
    ended_s: float | None = None
    stopping_until_s: float | None = None
    pid: int | None = None
    exit_status: int | None = None
    survivors: tuple[str, ...] = ()
    probe: str = "waiting"
    probe_seen_s: float | None = None
    probe_reason: str | None = None
    torch: str | None = None
    ranks: tuple[ProbeConnected, ...] = ()
    team: RanksSeen | None = None
    stacks: tuple[StacksSeen, ...] = ()
    machine: MachineSeen | None = None
    gpu: GpuSampled | None = None
    loaders: tuple[LoaderInfo, ...] = ()
    kernels: tuple[KnobReport, ...] = ()
    compiled: CompiledSeen | None = None
    latest: Sampled | None = None
    recent: tuple[Sampled, ...] = ()
    stepping: Sampled | None = None
    step: int | None = None
    epoch: int | None = None
    step_in_epoch: int | None = None
    optimizer_steps: int | None = None
    longest_s: Mapping[str, float] | None = None
    leaving_s: float | None = None
    session: SessionSeen | None = None
    handoff: HandoffSeen | None = None
    handoff_failed: str | None = None
    handoffs: Handoffs = Handoffs()
    identity: Mapping[str, str] | None = None
    crash: Crashed | None = None
    crashes: tuple[Crashed, ...] = ()
    pause: PauseMoved | None = None
    paused_since_s: float | None = None
    paused_s: float = 0.0
    idle_s: float = 0.0
    rings: tuple[Ring, ...] = RINGS
    current: Segment = Segment(cold=True)
    previous: Segment | None = None
    baseline: Baseline | None = None
    ledger: tuple[Entry, ...] = ()
    epochs: tuple[EpochEnded, ...] = ()
    output: OutputSeen | None = None
    disk_free_bytes: int | None = None
    """What is left on the disk that the output goes to, while that is little."""
    memory: tuple[MemorySeen, ...] = ()
    """Under the setting in force, over all its time; see ``memory``."""
    saved_path: str | None = None
    events_dropped: int = 0
    at_s: float = 0.0

"""One run's engine: reads the machine, listens to probes and clients, records, and sees the run to its end.

Made by ``main`` in its own process. Everything it does to the training is in ``verbs`` (what was asked for) and
``phases`` (what must follow); if it dies at any line, the training goes on and another engine takes over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from cockpit.model.events import (
    ChangeAsked,
    ProbeLost,
    ProcessStarted,
    TrainingEnded,
)
from cockpit.probe import handles
from cockpit.sensors.gpu.reader import GpuReader
from cockpit.sensors.machine import MachineReader

from . import phases, processes
from .alone import Alone
from .following import Following
from .hear import Ears
from .missing import Missing
from .record import Record
from .rundir import RunDir, read_json
from .runs import is_young
from .server import Handlers, Server
from .sight import SAMPLE_S, Sight
from .steady import Steady
from .told import Message, schedule_of
from .verbs import Verbs, new_id

REPAIR_S = 1.0
UNMARKED_S, UNMARKED_STOPPING_S = 5.0, 0.5
"""So often the processes that do not bear the run's mark are looked for: nothing leads to them after the end."""
LONG_AFTER_S = 1.0
"""Whoever is still here so long after the training is looked for at leisure."""


class Engine:
    """``clock`` gives seconds since the epoch; spans are measured with ``time.monotonic``."""

    def __init__(
        self,
        run: RunDir,
        record: Record,
        machine: MachineReader,
        gpu: GpuReader,
        clock: Callable[[], float] = time.time,
    ) -> None:
        facts = run.facts()
        self._run = run
        self._record = record
        self._clock = clock
        self._facts = facts
        self._ears = Ears(schedule_of(read_json(run.start_file)))
        grace_s = facts.get("grace_s")
        grace = float(grace_s) if isinstance(grace_s, (int, float)) else 30.0
        self._following = Following(run, record, self._ears, clock, new_id, self._stop_for_another)
        self._verbs = Verbs(run, record, self._ears, self._following, clock, grace)
        self.server = Server(run, record, Handlers(self._heard, self._hung_up, self._do))
        self._sight = Sight(run, record, self._ears, machine, gpu, clock)
        self._missing = Missing(run, record.state.argv)
        self._pids = processes.read_pids(run)
        if self._pids is not None and record.state.phase == "stopping":
            self._verbs.told.add(self._pids.training)  # by the engine before this one
        self._gone_s: float | None = None
        self._told: set[int] = set()
        self._met: dict[int, int | None] = {}
        self._unmarked: tuple[processes.Process, ...] = ()
        self._unmarked_s: float | None = None
        self._alone = Alone(run, self._ears, clock)
        self._steady = Steady(clock)
        self._over_s = self._steady.now_s()
        self._repaired_s = time.monotonic()
        self._wake = asyncio.Event()
        self._left = False

    def _heard(self, key: int, send: Callable[[Message], None], message: Message) -> None:
        """A probe has spoken."""
        for event in self._ears.hear(key, send, message, self._record.state, self._clock()):
            self._record.happen(event)
        if self._following.under_way:
            self._wake.set()

    def _hung_up(self, key: int) -> None:
        """A probe's connection has closed; perhaps the training with it."""
        for event in self._ears.lost(key, self._clock()):
            self._record.happen(event)
        self._wake.set()

    def _do(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """A client's verb."""
        self._wake.set()
        if verb == "stop":
            self._look_for_unmarked(time.monotonic())  # what is signalled may be gone a moment later
        return self._verbs.do(verb, args)

    def _stop_for_another(self) -> None:
        self._look_for_unmarked(time.monotonic())
        self._verbs.stop_softly()

    def training_began(self) -> None:
        """The keeper has written its pids (or an older engine has seen them)."""
        self._pids = processes.read_pids(self._run)
        self._following.remember(self._pids)
        if self._pids is not None and self._record.state.pid is None:
            self._record.happen(ProcessStarted(self._clock(), self._pids.training))

    async def run(self) -> None:
        """Until nothing is left to do."""
        # what an older engine had connected is not; they come back by themselves
        for rank in self._record.state.ranks:
            if rank.pid not in {probe.pid for probe in self._ears.probes.values()}:
                self._record.happen(ProbeLost(self._clock(), rank.pid))
        self._watch_keeper()
        while True:
            await self._turn()
            if self._left:  # at once: what is asked for meanwhile would begin, and nobody would see to it
                break
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
        self.server.close()
        self._record.journal.close()

    def _pause_s(self) -> float:
        if self._record.state.phase in ("ended", "lost"):
            return SAMPLE_S
        if self._gone_s is not None:
            return 0.03 if self._steady.now_s() - self._gone_s < LONG_AFTER_S else 0.25
        if self._record.state.phase == "stopping":
            return 0.1
        return max(0.01, self._sight.next_s(time.monotonic()))

    def _watch_keeper(self) -> None:
        """Wake as soon as the keeper ends, instead of at the next half second."""
        if self._pids is None:
            return
        handle = handles.open_handle(self._pids.keeper)
        if handle is None:
            return
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(handle)
            os.close(handle)
            self._wake.set()

        loop.add_reader(handle, ended)

    async def _turn(self) -> None:
        now = time.monotonic()
        if self._following.begins():
            self._begin_anew()
        if self._pids is None:
            self.training_began()
            self._watch_keeper()
        if self._record.state.phase not in ("ended", "lost"):
            self._see_life()
            self._following.look()
            self._look_at_end()
            if self._gone_s is None and self._pids is not None:
                self._sight.look(now, self._pids.training)
                for event in self._missing.look(now, self._pids, self._record.state, self._clock()):
                    self._record.happen(event)
                self._verbs.give_up()
        every_s = UNMARKED_STOPPING_S if self._record.state.phase == "stopping" else UNMARKED_S
        if self._gone_s is None and (self._unmarked_s is None or now - self._unmarked_s >= every_s):
            self._look_for_unmarked(now)
        if now - self._repaired_s >= REPAIR_S:
            self._repaired_s = now
            await self.server.repair()
        self._carry_out()

    def _begin_anew(self) -> None:
        """Another process begins where none was left: nothing that was seen of the last one is true of it."""
        self._pids, self._gone_s = None, None
        self._alone = Alone(self._run, self._ears, self._clock)
        self._unmarked, self._unmarked_s = (), None
        self._told.clear()
        self._verbs.told.clear()

    def _see_life(self) -> None:
        """Another process may have taken the training's place: by a hot restart, or on the way back from one."""
        pids, known = processes.read_pids(self._run), self._pids
        if pids is None:
            return
        self._pids = pids
        self._following.remember(pids)
        if known is not None and pids.keeper != known.keeper:
            self._watch_keeper()
        if pids.training != self._record.state.pid:
            self._record.happen(ProcessStarted(self._clock(), pids.training))
            if self._record.state.phase == "stopping" and pids.training not in self._verbs.told:
                # it began in the moment of the stop, and has not heard of it
                self._verbs.told.add(pids.training)
                processes.send(self._run, pids.training, signal.SIGTERM, pids.training_started)

    def _look_for_unmarked(self, now: float) -> None:
        self._unmarked_s = now
        if (found := processes.unmarked(self._run)) is not None:
            self._unmarked = found

    def _look_at_end(self) -> None:
        if self._gone_s is None and not self._training_lives():
            self._gone_s = self._steady.now_s()

    def _training_lives(self) -> bool:
        if processes.read_exit(self._run) is not None:
            return self._alone.is_saving(self._record.state, self._told, self._verbs.told)
        if not processes.is_here(self._run.facts()):
            return False
        pids = self._pids
        if pids is None:
            return self._following.starts or is_young(self._run)
        if processes.is_alive(pids.keeper, pids.keeper_started):
            return True
        # the keeper writes the status, then ends: look again before calling it lost
        lives = processes.is_alive(pids.training, pids.training_started)
        return lives and processes.read_exit(self._run) is None

    def _carry_out(self) -> None:
        if self._following.waits:
            return
        view = self._view()
        if phases.needs_others(view):
            view = self._view(with_others=True)
        for action in phases.decide(view):
            if isinstance(action, phases.Send):
                for pid in action.pids:
                    training = self._pids is not None and pid == self._pids.training
                    started = self._pids.training_started if self._pids and training else self._met.get(pid)
                    processes.send(self._run, pid, action.number, started)
                self._told.update(action.pids)
            elif isinstance(action, phases.Finish):
                self._finish(action)
            else:
                self._left = True

    def _view(self, with_others: bool = False) -> phases.View:
        state = self._record.state
        pids = self._pids
        training = pids.training if pids else None
        others: tuple[processes.Process, ...] = ()
        if with_others:
            # a probe that speaks is of the run, whatever its process has written over its environment
            met = {**dict.fromkeys(self._ears.training_pids()), **self._met}
            found = processes.marked(self._run, self._ears.worker_pids(), met)
            self._met = {process.pid: process.started_ticks for process in found}
            others = tuple(process for process in found if process.pid != training)
            ours = {process.pid for process in found}
            self._unmarked = tuple(
                each
                for each in self._unmarked
                if each.pid not in ours and processes.is_alive(each.pid, each.started_ticks)
            )
        ended = processes.read_exit(self._run) if self._gone_s is not None else None
        return phases.View(
            now_s=self._steady.now_s(),
            training=training if self._gone_s is None else None,
            others=others,
            unmarked=self._unmarked,
            told=frozenset(self._told | self._verbs.told),
            stop_until_s=self._steady.of(state.stopping_until_s),
            gone_s=self._gone_s,
            exit_status=ended[0] if ended else None,
            hears=bool(self._ears.probes),
            over=state.phase in ("ended", "lost"),
            over_s=self._over_s,
            clients=self.server.clients,
            was_watched=self.server.was_watched,
        )

    def _finish(self, action: phases.Finish) -> None:
        at_s = self._clock()
        if self._pids is not None:
            self._sight.last_look(time.monotonic(), self._pids.training)
        for event in self._missing.last_look(self._record.state, at_s):
            self._record.happen(event)
        if self._following.after_the_end(action.exit_status, self._pids):
            self._wake.set()
            return
        reported = {entry.id for entry in self._record.state.ledger}
        for change, asked in self._ears.schedule.items():
            if change not in reported:
                self._record.happen(ChangeAsked(at_s, change, asked.knobs, asked.now, asked.loader, asked.origin))
        self._record.happen(TrainingEnded(at_s, action.exit_status, action.survivors))
        self._over_s = self._steady.now_s()
        self._wake.set()

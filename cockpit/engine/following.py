"""Every way in which another process takes the place of the present one, as one thing. Called by ``engine``, ``verbs``.

A hot restart (``restarts``), another try after a crash or an end (``crashes``), a script that resumes from its own
checkpoint (``by_checkpoint``): which it is follows from how the run stands, and only one is ever under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cockpit.model.errors import CockpitError

from . import processes, trainers
from .beginnings import Beginnings
from .by_checkpoint import ByCheckpoint
from .crashes import Crashes
from .hear import Ears
from .record import Record
from .restarts import Restarts
from .rundir import RunDir
from .spent import are_spent, remove_handoffs


class Following:
    """``stop`` stops the training softly. ``clock`` gives seconds since the epoch."""

    def __init__(
        self,
        run: RunDir,
        record: Record,
        ears: Ears,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        stop: Callable[[], None],
    ) -> None:
        self._run, self._record, self._ears, self._new_id = run, record, ears, new_id
        self.restarts = Restarts(run, record, ears, clock)
        carried = self.restarts.carried
        self._beginnings = Beginnings(run, record, clock)
        self._crashes = Crashes(run, record, self._still, carried, self._beginnings, clock, new_id)
        self._by_checkpoint = ByCheckpoint(record, carried, self._crashes, self._beginnings, stop, clock)

    # ---- asked for ----

    def ask(self, env: Mapping[str, str | None], args: Mapping[str, Any], origin: str = "person") -> dict[str, Any]:
        """A restart, of whichever kind this run can have; raises a CockpitError with the reason why not.

        ``args``: ``now`` (do not wait for the next checkpoint) and ``environ`` (of whoever asks, once none trains).
        """
        state, given = self._record.state, args.get("environ")
        if state.phase in ("ended", "lost") or self._crashes.waits:
            return self._crashes.ask(env, self._new_id(), given if isinstance(given, dict) else None)
        if state.phase == "running" and self._by_checkpoint.is_for(state):
            if self.restarts.under_way:
                raise CockpitError("a restart is already under way: cockpit drop calls it off")
            return self._by_checkpoint.ask(env, self._new_id(), bool(args.get("now")), origin)
        return self.restarts.ask(env, self._new_id(), origin)

    def preview(self, env: Mapping[str, str | None]) -> dict[str, Any]:
        """What asking would come to, of whichever kind this run can have; nothing is begun."""
        state, look = self._record.state, self.restarts.preview(env)
        if state.phase in ("ended", "lost") or self._crashes.waits:
            return {**look, **self._crashes.preview()}
        if state.phase == "running" and self._by_checkpoint.is_for(state):
            return {**look, **self._by_checkpoint.preview(env)}
        return look

    def drop(self) -> bool:
        """Call off what waits; False where nothing does. Raises a CockpitError where it is too late."""
        if self._crashes.call_off("it was called off"):
            return True
        if self._by_checkpoint.stops:
            raise CockpitError("the training was told to stop for it already: cockpit stop ends it for good")
        if self._by_checkpoint.call_off():
            return True
        waiting = self.restarts.under_way
        if waiting and not self.restarts.call_off():
            raise CockpitError("the training has handed over already: the new process goes on")
        return waiting

    def stopping(self) -> None:
        """The run is to end, and nothing follows."""
        self._by_checkpoint.call_off("the run was stopped")
        self.restarts.stopping()

    # ---- under way ----

    def remember(self, pids: processes.Pids | None) -> None:
        """A process has begun, or goes on."""
        self._beginnings.remember(pids)

    def begins(self) -> bool:
        """Whether another process has been started where none was left; said once."""
        self._crashes.look()
        begun, self._beginnings.begun = self._beginnings.begun, False
        return begun

    def look(self) -> None:
        """Whatever has become known since the last look."""
        self.restarts.look()
        self._by_checkpoint.look()

    @property
    def under_way(self) -> bool:
        """Whether each message of the training may be news."""
        return self.restarts.under_way

    @property
    def starts(self) -> bool:
        """Whether one that was started is on its way, however long that takes on a busy machine."""
        return self._beginnings.starts

    @property
    def waits(self) -> bool:
        """Whether no process trains, and one is to begin."""
        return self._crashes.waits

    def after_the_end(self, status: int | None, pids: processes.Pids | None) -> bool:
        """Whether another process follows the one that has ended."""
        if self._by_checkpoint.after_the_end(pids):
            return True
        # whoever is to be restarted once it has saved has ended by itself
        self._by_checkpoint.call_off("the training ended before it had written another checkpoint")
        if self._crashes.after_the_end(status, pids):
            return True
        if status == 0 and self._still() is None:
            crashes = self._crashes
            if are_spent(self._run, crashes.bases.handoff(), crashes.left(pids)):
                remove_handoffs(self._run)
        return False

    def _still(self) -> str | None:
        """Why no process may begin: somebody of the run trains, or is about to."""
        found = trainers.who_trains(self._run, self._ears.training_pids(), self._ears.worker_pids())
        return found.words(self._record.state.run) if found is not None else None

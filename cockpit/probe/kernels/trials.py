"""Which change of the kernels is on trial, until when, and where it may be judged. One for each training.

``landing`` begins a trial where a change lands; the engine's word that it is kept ends it, the next change does, and
what has gone wrong. It must judge only where no graph of the training is under way: put back in between, the values
that a backward needs would be others than those of its forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from ...model.knobs import SCRIPT
from ..groups import Refused
from ..recorder import Recorder
from . import snapshot
from .autocast import OFF
from .control import Kernels
from .slower import Slower
from .trial import UNDONE, Trial, concerns

RISK_NS = 10_000_000_000


class Trials:
    """``gone_back(ask, reason)`` is told when the newest change has been taken back.

    ``on_forward`` is what the roots call before each forward: ``at_forward``, through the guard.
    """

    def __init__(self, recorder: Recorder, kernels: Kernels, gone_back: Callable[[Any, str], None]) -> None:
        self._recorder = recorder
        self._kernels = kernels
        self._gone_back = gone_back
        self.on_forward: Callable[[], None] = self.at_forward
        self.scheduled: Callable[[], bool] = lambda: False
        """Whether the script has a schedule of the learning rate."""
        self._kept: set[str] = set()
        self._by_forward = False
        self._risk: str | None = None
        self._risk_ns: int | None = None
        self._caught: str | None = None
        self._slower = Slower(recorder)

    def restart(self) -> None:
        """In a forked child nothing is on trial."""
        self._kept.clear()
        self.set(None)

    # ---- what is told, in the probe's thread ----

    def hear(self, message: Mapping[str, Any]) -> None:
        """The engine says that a change is kept."""
        if message.get("m") == "kept":
            self._kept.add(str(message.get("id")))
            self._recorder.awaited = True

    def foretell(self, ask: Any) -> str | None:
        """Before ``ask`` is applied: what could not be undone, who would get other tensors. None: not known yet."""
        if not concerns(ask.kernels):
            return ""
        if self._risk_ns is None:
            return None
        lower = ask.kernels.get("autocast", SCRIPT) not in (SCRIPT, OFF)
        return "; ".join(filter(None, (self._risk, self._caught if lower else None)))

    # ---- begin and end ----

    def begin(self, ask: Any) -> None:
        """``ask`` has landed. What it finds of one before it that was still on trial is what it goes back to."""
        recorder, kernels = self._recorder, self._kernels
        self.set(None)
        if not concerns(ask.kernels) or recorder.thread != recorder.ident() or not kernels.roots:
            return
        began = recorder.clock()
        trial = Trial(kernels.torch, recorder, ask, kernels.modules(), self.scheduled())
        trial.on_failure = lambda: self.give_back(ask)
        trial.has_run = lambda: any(root.calls for root in kernels.roots)
        self.set(trial)
        on_cpu = all(root.device == "cpu" for root in kernels.roots)
        self._slower.begin(ask.kernels if on_cpu and not ask.knobs else {})
        if ask.knobs and ask.stall_ns:  # a swap's stall is told already; any other goes on until this is over
            ask.stall_ns += recorder.clock() - began

    def end(self, ask: Any) -> None:
        """Its copies are let go."""
        trial = self._recorder.trial
        if trial is not None and trial.ask is ask:
            self.set(None)

    def set(self, trial: Trial | None) -> None:
        """On trial from now on; None: nothing is."""
        if trial is not self._recorder.trial:
            self._recorder.trial = trial
            self._kernels.mind_calls(None if trial is None else self.on_forward)

    # ---- when it is judged, in the training's thread ----

    def at_step(self) -> None:
        """A step has ended; perhaps where the first forward of the next has been."""
        recorder = self._recorder
        self._by_forward = recorder.has_forward
        self._slower.at_step()
        if recorder.trial is not None and not recorder.has_forward:
            self._judge(recorder.trial)

    def at_batch(self) -> None:
        """A batch is about to be fetched: where a script skips every update, no step ends."""
        if self._recorder.trial is not None:
            self._judge(self._recorder.trial)

    def at_forward(self) -> None:
        """A forward is about to run; where those end the steps, the first one after an update stands between two."""
        recorder = self._recorder
        here = recorder.trial is not None and recorder.thread == recorder.ident()
        if here and self._by_forward and recorder.updates and self._kernels.torch.is_grad_enabled():
            self._judge(recorder.trial)

    def _judge(self, trial: Trial) -> None:
        ask, words = trial.ask, trial.found()
        if words is None:
            if self._slower.words is not None and ask.state != "rolled_back":
                self.set(None)  # nothing is wrong with the state: it stays
                self.give_back(ask)
                self._gone_back(ask, self._slower.words)
            elif ask.id in self._kept or ask.state == "rolled_back" or trial.is_over():
                self.end(ask)
            return
        self.set(None)
        if trial.failed is None:
            self.give_back(ask)
        self._gone_back(ask, trial.put_back(words))

    def give_back(self, ask: Any) -> None:
        """The kernel part of ``ask`` is what it was before."""
        for name in ask.kernels:
            value = ask.before.get(name)
            try:
                self._kernels.land({name: SCRIPT if value is None else value})
            except Refused:
                self._kernels.land({name: SCRIPT})

    def look_at_risk(self) -> None:
        """What would be said of a change that cannot be undone. In the training's thread: it looks at the state."""
        recorder, kernels = self._recorder, self._kernels
        self._slower.look()
        now = recorder.clock()
        if not kernels.roots or (self._risk_ns is not None and now - self._risk_ns < RISK_NS):
            return
        optimizers = recorder.living_optimizers()
        needed = snapshot.sizes(kernels.torch, snapshot.trained(kernels.modules(), optimizers), optimizers)
        reason = snapshot.room(kernels.torch, needed).reason
        self._risk = None if reason is None else "%s: %s" % (UNDONE, reason)
        kernels.look_for_hooks()
        self._caught = kernels.caught()
        self._risk_ns = now

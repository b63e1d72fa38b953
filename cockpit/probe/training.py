"""What each backward tells: which loaders train, in which thread, and where a run of steps begins.

Called by the guard's wrapper round ``torch.autograd.backward``, in the script's thread. The plain step (one training
loader, nothing new) must go straight through; only what changes the picture takes the longer way.
"""

from __future__ import annotations

from typing import Any, Callable

from .recorder import BACKWARD, OPTIMIZER, Recorder
from .registry import Registry
from .roles import Roles
from .streams import TRAIN, Stream
from .unfed import Unfed


class Training:
    """``hooks`` is told when a loader's role has changed; ``unfed`` looks where no batch comes any more."""

    def __init__(
        self, recorder: Recorder, roles: Roles, registry: Registry, changes: Any, hooks: Any, unfed: Unfed
    ) -> None:
        self._recorder = recorder
        self._roles = roles
        self._registry = registry
        self._changes = changes
        self._hooks = hooks
        self._unfed = unfed
        self.on_first_backward: Callable[[], None] = lambda: None

    def after_backward(self, began: int, charged: int) -> None:
        """A backward that began at ``began`` has ended."""
        recorder, roles = self._recorder, self._roles
        now = recorder.since = recorder.clock()
        own = now - began - (recorder.charged - charged)
        recorder.charged += own
        recorder.backward += own
        if recorder.doing == BACKWARD:
            return  # a backward inside a backward: reentrant checkpointing
        if recorder.doing != OPTIMIZER:
            recorder.optimizer_depth = 0  # an optimizer step that raised has left it behind
        recorder.backwards += 1
        if not recorder.optimizer_seen:
            recorder.updates += 1
            recorder.last_update_ns = now
        if recorder.thread is None:
            recorder.thread = recorder.ident()
            self.on_first_backward()
        recent, plain = roles.recent, recorder.base is not None and not recorder.read_ahead
        if plain and len(recent) == 1 and recent[0].trains:
            roles.interval += 1
            stream = recent[0]
            stream.interval = roles.interval
            stream.consumed += 1
            if not stream.lead:
                self._hooks.epochs.begun(stream)
            recent.clear()
        else:
            if recent or not plain:
                self._settle(began)
            if recorder.updates >= self._unfed.patience and self._unfed.look():
                return  # the next step begins with what comes next
        if recorder.loaderless and not recorder.forward_steps:
            self._step_by_backward(began)

    def _settle(self, began: int) -> None:
        recorder = self._recorder
        known = bool(self._registry.training())
        training, ahead = self._roles.settle(recorder.thread or 0, known, known or recorder.loaderless)
        for stream in training:
            if not stream.trains:
                self._promote(stream, ahead)
            if not stream.lead:
                self._hooks.epochs.begun(stream)
        if not (training or known or recorder.loaderless):
            recorder.loaderless = True
            self._unfed.all_left()
        if (not training or ahead) and recorder.base is None and recorder.last_forward is not None:
            recorder.begin(recorder.last_forward)
        if not training:
            return
        self._unfed.over()
        recorder.read_ahead = ahead
        # what was fetched whole before it is trained on tells neither steps nor waits
        recorder.loaderless = ahead or all(stream.used_up for stream in training)
        if recorder.base is None:
            bases = [stream.base for stream in training if stream.base is not None]
            recorder.begin(min(bases) if bases else recorder.mark(began))
            for stream in training:
                self._charge_pending(stream)

    def _promote(self, stream: Stream, ahead: bool) -> None:
        recorder, record = self._recorder, stream.record
        stream.trains = True
        if record.role != TRAIN:
            record.role = TRAIN
            if not record.epochs:  # else an earlier process has counted some already
                record.epochs_before = recorder.epoch
        self._hooks.epochs.trained_after_all(stream)
        record.read_ahead = ahead
        self._hooks.epochs.tell_others()
        recorder.samples += stream.pending_samples
        recorder.unsized += stream.pending_unsized
        if recorder.base is not None and not ahead:
            self._charge_pending(stream, recorder.loaderless)
        self._changes.news = self._hooks.facts_due = True

    def _charge_pending(self, stream: Stream, before: bool = False) -> None:
        """``before``: a step that went by forward has begun since, and what was waited for belongs to the last one."""
        if not before:
            self._recorder.wait += stream.pending_wait
            self._recorder.start += stream.pending_start
        stream.rebase(None)

    def _step_by_backward(self, began: int) -> None:
        """No loader, and no module that we could see called: a step runs from backward to backward."""
        recorder = self._recorder
        own = not recorder.optimizer_seen
        if recorder.base is None:
            recorder.begin(recorder.mark(began))
        elif recorder.updates > own:
            recorder.end_step(began)
            recorder.updates += own
            if recorder.hold:
                self._hooks.on_hold()

"""Looks at the steps after another batch size was asked for, until its boundary comes: is the loop made for this one?

Made and asked by the probe; ``begins`` when an ask arrives, ``at_step`` at a step's end in the training's thread. What
is looked at, and what it means, is ``kernels.made_for``. While nobody asks, nothing of it is in the way of a step.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .asks import Ask, Asks
from .batching import BATCH
from .kernels.made_for import MadeFor
from .recorder import Recorder
from .registry import Registry
from .streams import TRAIN


class OneSize:
    """``run`` is the guard's. ``found`` and ``rings`` say by size what was seen."""

    def __init__(
        self, torch: Any, recorder: Recorder, registry: Registry, asks: Asks, kernels: Any, run: Callable[..., Any]
    ) -> None:
        self._recorder = recorder
        self._registry = registry
        self._asks = asks
        self._kernels = kernels
        self._run = run
        self._made_for = MadeFor(torch)
        self._done: set[str] = set()
        self._asked = False
        self.found, self.rings = self._made_for.found, self._made_for.rings.found
        asks.foretellers.append(self.begins)

    @property
    def looks(self) -> bool:
        """Whether the next steps are looked at."""
        return self._asked or self._made_for.size is not None

    def begins(self, ask: Ask) -> str:
        """Another size is asked for: the end of the next step matters. It foretells nothing itself."""
        if BATCH in ask.knobs:
            self._asked = self._recorder.awaited = True
        return ""

    def at_step(self) -> None:
        """A step has ended: look at the next ones if a size was asked for since; stop where enough was seen."""
        made_for, recorder = self._made_for, self._recorder
        if made_for.size is not None:
            if not made_for.next_step(recorder.steps):
                self._kernels.mind_results(None)
                recorder.on_backward = None
            return
        if not self._asked:
            return
        new = [ask for ask in list(self._asks.waiting) if BATCH in ask.knobs and ask.id not in self._done]
        batches = [r.batch for r in list(self._registry.records.values()) if r.role == TRAIN and r.batch is not None]
        sizes = {batch.in_force for batch in batches if batch.in_force and not batch.uneven}
        if new and not (batches and self._kernels.roots):
            return  # nothing is known to train yet
        self._asked = False
        self._done.update(ask.id for ask in new)
        if new and len(sizes) == 1:  # else nobody could say whose it is
            made_for.begin(sizes.pop(), recorder.steps)
            self._kernels.mind_results(functools.partial(self._run, "batches", made_for.called))
            recorder.on_backward = functools.partial(self._run, "batches", made_for.back)

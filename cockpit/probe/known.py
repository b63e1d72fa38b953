"""What is known of one loader's limits, and when it is looked at anew: at each epoch's start, and before workers.

Kept by the loader's control. A look that fails is the guard's affair and ends no training: then what was found before
holds, and of what could not be looked at it is said so.
"""

from __future__ import annotations

from typing import Any

from .dataset_watch import DatasetWatch, watch_of
from .groups import Group
from .mechanism import Mechanism
from .refusals import Limits, limits_of, with_held
from .sharing import UNSEEN, Sharing


class Known:
    """``limits`` are all there is; ``dataset`` is what is known at the loader's place of datasets of its kind."""

    def __init__(
        self, mechanism: Mechanism, loader: Any, script: Group, learnt: dict[str, DatasetWatch] | None
    ) -> None:
        self._mechanism = mechanism
        self.dataset = watch_of(
            {} if learnt is None else learnt,
            vars(loader).get("dataset"),
            lambda: DatasetWatch(mechanism.torch.nn.Module, mechanism.clock),
        )
        self._sharing = Sharing(mechanism.held, self.dataset)
        self._found = self.limits = limits_of(mechanism, loader, script, self.dataset)

    def look_at(self, loader: Any, script: Group, last: Group, needed: bool) -> None:
        """At the start of an epoch; ``last`` has served the one before."""
        run = self._mechanism.run
        run("dataset", self.dataset.look_at, loader.dataset, needed)
        self._found = run("limits", limits_of, self._mechanism, loader, script, self.dataset) or self._found
        self.limits = self._found
        if self._found.whole is None:
            held = run("held", self._sharing.glance, loader, script, last)
            self.limits = with_held(self._found, held or UNSEEN)

    def look_closely(self, given: Any, script: Group, last: Group, now: bool) -> None:
        """Workers may be started: what would they share with the training, and what would they miss?"""
        if given is not None and self._found.whole is None:
            held = self._mechanism.run("held", self._sharing.look, given, script, last, now)
            self.limits = with_held(self._found, held or UNSEEN)

    def look_within(self, given: Any) -> None:
        """At the end of an epoch, before the script changes anything for the next one."""
        if given is not None:
            self._mechanism.run("dataset", self.dataset.look_within, given.dataset)

    def before(self, loader: Any, script: Group) -> Limits | None:
        """Where workers have turned out to do harm: the limits as they were before that. None: nothing has."""
        if self.dataset.restless is None and self.dataset.whole is None:
            return None
        return limits_of(self._mechanism, loader, script, self.dataset, before=True)

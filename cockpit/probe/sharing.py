"""When what a dataset holds forbids workers: one loader's memory of what ``held`` has found.

Kept by the loader's control. It must look anew before each start of workers that the script has not asked for, since
a dataset may open its file at any sample; and leave alone what the script's own workers share anyway.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .anew import forks
from .dataset_watch import DatasetWatch
from .groups import Group
from .held import Held, HeldWatch

NOTHING = Held()
UNSEEN = Held(None, "what the dataset holds could not be looked at: workers may share it")
JUST_NOW_NS = 5_000_000
"""So long an answer serves for other knobs of the same boundary; who asks between two batches is looked at anew."""
RESTLESS = "the loop changes the dataset while it trains (%s), and workers would not see it"


class Sharing:
    """``now`` is what is known to forbid, or be noted of, workers; ``dataset`` knows what the script does to it."""

    def __init__(self, watch: HeldWatch, dataset: DatasetWatch) -> None:
        self._watch = watch
        self.dataset = dataset
        self.now = NOTHING
        self._looked: tuple[int, Held] | None = None

    def glance(self, loader: Any, script: Group, in_force: Group) -> Held:
        """At an epoch's start, for the rows: what is found quickly, or what was found before."""
        found = self._watch.glance(loader) if forks(loader) else NOTHING
        if found is not None:
            if script.num_workers and in_force.num_workers:
                self.dataset.own_held = bool(self.dataset.own_held) or found.refused is not None
            self.now = self._meaning(found, script, in_force)
        return self._with_restless(script)

    def look(self, given: Any, script: Group, in_force: Group, within: bool) -> Held:
        """Before workers are started; ``given`` is the loader, or has its fields. ``within``: an epoch is under way."""
        if within and not in_force.num_workers:
            self.dataset.look_within(given.dataset)
        if forks(given) and not self._may_share(script, in_force):
            self.now = self._meaning(self._closely(given, within), script, in_force)
        return self._with_restless(script)

    def _closely(self, given: Any, within: bool) -> Held:
        now_ns, known = self._watch.clock(), self._looked
        if within or known is None or known[1].refused is not None or now_ns - known[0] > JUST_NOW_NS:
            found = self._watch.look(given)
            self._looked = known = (self._watch.clock(), found)
        return known[1]

    def _with_restless(self, script: Group) -> Held:
        if self.now.refused is None and self.dataset.restless is not None and not script.num_workers:
            return Held(RESTLESS % self.dataset.restless)
        return self.now

    def _meaning(self, found: Held, script: Group, in_force: Group) -> Held:
        return NOTHING if self._may_share(script, in_force) else found

    def _may_share(self, script: Group, in_force: Group) -> bool:
        """The script has workers of its own, and what they share is its affair; but what its dataset opened here only
        because a change had taken them away, they would not have shared."""
        return script.num_workers > 0 and (in_force.num_workers > 0 or self.dataset.own_held is not False)


def given_to_workers(loader: Any, front: Any) -> Any:
    """What has the fields of the loader: itself, or where it is gone what its iterator remembers of it, or None."""
    recipe = getattr(front, "_cockpit_recipe", None)
    return loader if loader is not None or recipe is None else SimpleNamespace(**recipe.fields)

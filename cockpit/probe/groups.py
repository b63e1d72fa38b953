"""The five loader knobs as one coupled group: what the script has, what was asked, and what follows from it.

Pure, called by the swap mechanism and its tests. It must never set anything on a loader: a group is only a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..model.errors import CockpitError
from ..model.knobs import SCRIPT, Value

DEFAULT_PREFETCH = 2
"""What torch itself takes where workers exist and nobody said."""


class Group(NamedTuple):
    """One setting of a loader. ``prefetch_factor`` is None exactly where there are no workers.

    ``batch_size``: samples a batch where that is not what the script has, else None. It is no knob of the group, but
    while it is another, what loads the batches is a setting of ours, and what fails under it must give way.
    """

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    in_order: bool
    batch_size: int | None = None

    @property
    def alone(self) -> Group:
        """The five knobs, whatever the batches are cut to."""
        return self._replace(batch_size=None)

    def changed_to(self, other: Group) -> set[str]:
        """What is not the same in ``other``."""
        return {name for name, value in self._asdict().items() if getattr(other, name) != value}

    @property
    def capacity(self) -> int:
        """Batches that may be ready or on their way ahead of the script; 0 without workers."""
        return self.num_workers * (self.prefetch_factor or 0)


class Path:
    """What has served one loader, from the script's own settings on: the way back where the newest fails. Whoever goes
    back to something earlier, or undoes, leaves what came after it behind."""

    def __init__(self, script: Group) -> None:
        self._steps = [script]

    @property
    def now(self) -> Group:
        return self._steps[-1]

    def before(self, group: Group) -> Group:
        """What to go back to where ``group`` fails, which serves now or is about to."""
        return self._steps[-2] if group == self.now and len(self._steps) > 1 else self.now

    def step(self, group: Group) -> None:
        """``group`` serves from now on."""
        if group in self._steps:
            del self._steps[self._steps.index(group) + 1 :]
        else:
            self._steps.append(group)

    def back(self, group: Group) -> None:
        """What served has failed, and ``group`` has taken its place."""
        if group not in self._steps:
            self._steps = [self._steps[0], group]
        self.step(group)


class Refused(CockpitError):
    """This knob cannot take this value on this loader; ``reason`` is the sentence for the user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def script_group(loader: Any) -> Group:
    """What the script made ``loader`` with, as torch would use it at its next ``__iter__``."""
    workers = int(loader.num_workers)
    return Group(
        num_workers=workers,
        prefetch_factor=loader.prefetch_factor if workers else None,
        pin_memory=bool(loader.pin_memory),
        persistent_workers=bool(loader.persistent_workers and workers),
        in_order=bool(getattr(loader, "in_order", True)),
    )


def couple(script: Group, asked: Mapping[str, Value], base: Group, kept: Group | None = None) -> Group:
    """``asked`` on top of ``base``; what depends on it moves along; ``"script"`` is the script's own value.

    ``kept`` is the last group that had workers: where workers come back, its prefetch and persistence do too.
    Raises Refused where a knob was asked for by name and cannot be had together with the rest.
    """
    if not asked:
        return base
    wanted = dict(base._asdict())
    for name, value in asked.items():
        wanted[name] = getattr(script, name) if value == SCRIPT else value
    if wanted["num_workers"] == 0:
        _refuse_without_workers(asked, wanted)
        wanted["prefetch_factor"], wanted["persistent_workers"] = None, False
    elif base.num_workers == 0:
        back = kept or script
        if "persistent_workers" not in asked:
            wanted["persistent_workers"] = back.persistent_workers
        if wanted["prefetch_factor"] is None:
            wanted["prefetch_factor"] = back.prefetch_factor or DEFAULT_PREFETCH
    elif wanted["prefetch_factor"] is None:  # "script", where the script has no workers
        wanted["prefetch_factor"] = DEFAULT_PREFETCH
    return Group(**wanted)


def _refuse_without_workers(asked: Mapping[str, Value], wanted: Mapping[str, Any]) -> None:
    idle = {"prefetch_factor": None, "persistent_workers": False, "in_order": True}
    for name, harmless in idle.items():
        if name in asked and asked[name] != SCRIPT and wanted[name] != harmless:
            raise Refused("%s needs workers: set num_workers to 1 or more with it" % name)

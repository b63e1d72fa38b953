"""What cannot be changed on one loader, and why: checked up front, so that a knob is greyed out before it is turned.

Pure looks at the script's own objects, called by the control at a loader's ``__iter__``. It must never call the
script's code: attributes are looked up without running properties or ``__getattr__``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ..model.knobs import LOADER_KNOBS, SCRIPT, Value
from .anew import forks
from .dataset_watch import DatasetWatch
from .groups import Group, Refused
from .held import Held
from .imported_anew import set_since_import
from .mechanism import Mechanism
from .reach import names_in
from .recipes import RECIPE_FIELDS
from .whose import is_scripts, module_of

STREAM_NOW = "an iterable dataset has no indices to hand over: changes at the epoch boundary"
STREAM_WHOLE = "every worker would serve the whole stream: the dataset does not ask get_worker_info"

NO_ACCELERATOR = "no accelerator found"


class Refusal(NamedTuple):
    """What holds for one knob: ``can`` change at a boundary, ``can_now`` at once; ``note`` does not forbid."""

    can: bool = True
    can_now: bool = True
    reason: str | None = None
    note: str | None = None


class Limits(NamedTuple):
    """What was found on one loader. ``workers``: the only numbers of workers it may have, None for any.

    ``whole``: why nothing at all can be changed here, or None.
    """

    knobs: dict[str, Refusal]
    whole: str | None = None
    workers: frozenset[int] | None = None
    workers_reason: str | None = None

    def check(self, asked: Mapping[str, Value], now: bool, script: Group, base: Group) -> None:
        """Raises Refused where one of them cannot be changed (``now``: at once); what is so already always can."""
        for name, value in asked.items():
            limit = self.knobs[name]
            in_vain = limit.reason == NO_ACCELERATOR and value is True  # not in force where the script has it, either
            is_so = value == SCRIPT or (value in (getattr(script, name), getattr(base, name)) and not in_vain)
            if not (limit.can or is_so) or (now and not limit.can_now):
                raise Refused("%s: %s" % (name, limit.reason))

    def checked(self, group: Group) -> Group:
        """``group``; raises Refused where it has as many workers as may not be."""
        if self.workers is not None and group.num_workers not in self.workers:
            raise Refused("num_workers: %s" % self.workers_reason)
        return group


def limits_of(
    mechanism: Mechanism, loader: Any, script: Group, watch: DatasetWatch | None = None, before: bool = False
) -> Limits:
    """Looks at ``loader``, whose own settings are ``script``; ``watch`` has looked at its dataset before.

    ``before``: as it was before any workers had served it.
    """
    changing = None if watch is None else watch.changing
    whole = mechanism.off or _whole_reason(mechanism, loader)
    if whole is not None:
        return Limits({name: Refusal(can=False, can_now=False, reason=whole) for name in LOADER_KNOBS}, whole)
    workers, why = _allowed_workers(mechanism, loader, script, watch, before)
    knobs = {name: Refusal() for name in LOADER_KNOBS}
    notes = []
    if changing is not None and script.num_workers == 0:
        notes.append("what the dataset does to itself (%s) would stay in the workers" % changing)
    asked_earlier = own_sampler(loader) if script.num_workers == 0 else None
    if asked_earlier is not None:
        notes.append(
            "workers ask %s some batches ahead: one that chooses by the losses so far would choose by older ones, "
            "and a position that is saved in mid-epoch is ahead of what was trained on" % asked_earlier
        )
    if notes:
        knobs["num_workers"] = Refusal(note="; ".join(notes))
    if workers is not None:
        only = Refusal(can=False, can_now=False, reason=why)
        knobs["num_workers"] = only if len(workers) == 1 else Refusal(note="1 at most: %s" % why)
    knobs["in_order"] = Refusal(note="off: the order of batches is no longer reproducible")
    knobs["persistent_workers"] = _persistence(loader, script, None if watch is None else watch.stale)
    if not mechanism.has_accelerator():
        knobs["pin_memory"] = Refusal(can=False, can_now=False, reason=NO_ACCELERATOR)
    if loader._dataset_kind == mechanism.iterable_kind:
        knobs = {name: each._replace(can_now=False, reason=each.reason or STREAM_NOW) for name, each in knobs.items()}
    return Limits(knobs, None, workers, why)


def with_held(limits: Limits, held: Held) -> Limits:
    """``limits`` of a loader whose dataset holds what workers would share."""
    own = limits.knobs["num_workers"]
    if limits.whole is not None or not own.can or held == (None, None):
        return limits
    if held.refused is not None:
        knobs = {**limits.knobs, "num_workers": Refusal(can=False, can_now=False, reason=held.refused)}
        return Limits(knobs, None, frozenset([0]), held.refused)
    note = "; ".join(filter(None, (own.note, held.note)))
    return limits._replace(knobs={**limits.knobs, "num_workers": own._replace(note=note)})


def _allowed_workers(
    mechanism: Mechanism, loader: Any, script: Group, watch: DatasetWatch | None, before: bool
) -> tuple[frozenset[int] | None, str | None]:
    if script.num_workers == 0 and runs_again(loader):
        return frozenset([0]), 'workers would run the script again: it has no if __name__ == "__main__"'
    lost = cannot_be_pickled(loader) if script.num_workers == 0 and not forks(loader) else None
    if lost is not None:
        return frozenset([0]), "%s, which cannot be pickled for workers that are not forked" % lost
    anew = None
    if script.num_workers == 0 and not forks(loader):
        anew = set_since_import(loader) if watch is None else watch.set_since_import(loader)
    if anew is not None:
        return frozenset([0]), "workers import the script anew, and what it has made of %s since is not there" % anew
    seen = watch.whole if watch is not None and not before else None
    if loader._dataset_kind == mechanism.iterable_kind and (seen or not shards(mechanism.torch, loader)):
        # none and one serve the same; the script's own many serve it many times, and fewer would shorten its epoch
        return frozenset([0, 1] if script.num_workers < 2 else [script.num_workers]), seen or STREAM_WHOLE
    return None, None


def depending(limits: Limits, in_force: Group) -> dict[str, Refusal]:
    """``limits`` with what needs workers greyed out while there are none."""
    if in_force.num_workers:
        return limits.knobs
    reason = "needs num_workers of 1 or more"
    idle = {
        name: Refusal(can=False, can_now=False, reason=reason)
        for name in ("prefetch_factor", "persistent_workers", "in_order")
        if limits.knobs[name].can
    }
    return {**limits.knobs, **idle}


def _whole_reason(mechanism: Mechanism, loader: Any) -> str | None:
    own = inspect.getattr_static(type(loader), "_get_iterator", None)
    if own is not inspect.getattr_static(mechanism.loader_class, "_get_iterator"):
        return "%s makes its own iterators" % type(loader).__name__
    for name in (*RECIPE_FIELDS, "_index_sampler", "generator", "num_workers", "prefetch_factor", "_iterator"):
        if not hasattr(loader, name):
            return "%s has no %s" % (type(loader).__name__, name)
    data = mechanism.torch.utils.data
    for pipe in ("IterDataPipe", "MapDataPipe"):
        if isinstance(loader.dataset, getattr(data, pipe, ())):
            return "a data pipe shares itself out among its workers once and for all"
    return None


def _persistence(loader: Any, script: Group, changed: str | None) -> Refusal:
    if script.persistent_workers:
        return Refusal()
    stale = None
    if _has(loader.dataset, "set_epoch"):
        stale = "the dataset has set_epoch"
    elif changed is not None:
        stale = "the script changes the dataset between epochs (%s)" % changed
    if stale is not None:
        return Refusal(can=False, can_now=False, reason=stale + ", which would no longer reach the workers")
    return Refusal(note="workers keep the dataset as it is at their start")


def _has(thing: Any, name: str) -> bool:
    return inspect.getattr_static(thing, name, None) is not None


def own_sampler(loader: Any) -> str | None:
    """The name of a sampler's class that the script has written itself: what it looks at, nobody can know."""
    sampler, batches = loader.sampler, loader.batch_sampler
    parts = (batches, getattr(batches, "sampler", None) if type(batches).__module__.startswith("torch.") else None)
    for part in (*parts, sampler):
        kind = type(part)
        if part is not None and is_scripts(module_of(kind)):
            return kind.__name__
    return None


def cannot_be_pickled(loader: Any) -> str | None:
    """What surely cannot be, of all that a worker is given: told by its name alone, running nothing of the script."""
    for name in ("collate_fn", "worker_init_fn"):
        if _is_local(getattr(loader, name)):
            return "%s is a lambda or a function inside another" % name
    dataset, kind = loader.dataset, type(loader.dataset)
    own = [vars(owner) for owner in kind.__mro__[:-1]]
    if any(name in owner for owner in own for name in ("__reduce__", "__reduce_ex__", "__getstate__")):
        return None
    if "<locals>" in kind.__qualname__:
        return "the dataset's class stands inside a function"
    found = (name for name, value in list(getattr(dataset, "__dict__", {}).items()) if _is_local(value))
    attribute = next(found, None)
    return None if attribute is None else "the dataset's %s is a lambda or a function inside another" % attribute


def _is_local(thing: Any) -> bool:
    return type(thing) is FunctionType and ("<lambda>" in thing.__qualname__ or "<locals>" in thing.__qualname__)


def runs_again(loader: Any) -> bool:
    """Whether new workers are started by importing a main script that would then train once more in each."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if forks(loader) or file is None:
        return False
    try:
        return _is_unguarded(file, os.stat(file).st_mtime_ns)
    except OSError:
        return True


@functools.lru_cache(maxsize=4)
def _is_unguarded(file: str, changed_ns: int) -> bool:
    """Read once: some scripts make an iterator for each step."""
    try:
        with open(file, "rb") as script:
            body = ast.parse(script.read()).body
    except (OSError, SyntaxError, ValueError):
        return True
    tests = (node.test for node in body if isinstance(node, ast.If))
    return not any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))


def shards(torch: Any, loader: Any) -> bool:
    """Whether an iterable dataset, a part of it, or the worker_init_fn asks which worker it is in."""
    stream = torch.utils.data.IterableDataset
    seen: set[CodeType] = set()
    if _asks(getattr(loader.worker_init_fn, "func", loader.worker_init_fn), None, seen):
        return True
    parts = [loader.dataset, *getattr(loader.dataset, "__dict__", {}).values()]
    return any(
        isinstance(part, stream) and _asks(inspect.getattr_static(type(part), "__iter__"), type(part), seen)
        for part in parts
    )


def _asks(function: Any, owner: type | None, seen: set[CodeType]) -> bool:
    """Whether ``function``, or what it calls on its own class or module, mentions get_worker_info."""
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or code in seen:
        return False
    seen.add(code)
    names = set(names_in(code))
    if "get_worker_info" in names:
        return True
    places = getattr(function, "__globals__", {})
    for name in names:
        for called in (inspect.getattr_static(owner, name, None) if owner else None, places.get(name)):
            called = getattr(called, "__func__", called)
            if isinstance(called, FunctionType) and _asks(called, owner, seen):
                return True
    return False

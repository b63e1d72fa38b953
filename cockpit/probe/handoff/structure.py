"""How the script's things are built: what a new process, which runs the same lines, loads a hand-off into.

Taken where ``cockpit.session`` is called, and compared at the end of each epoch: a group or a layer that has come since
is not there in a process that begins anew, and loading would fail when the old one is gone. It runs none of the
script's code, reads no value and keeps no tensor. Called by ``live``, in the script's thread.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from typing import Any, Callable, NamedTuple, cast

from ...model.counts import counted
from ..guard import attempt

TORCHS_OWN = ("torch.nn.modules.module", "torch.nn.modules.batchnorm", "torch.optim.optimizer")
"""Modules whose ways of saving and loading are known to be strict about names and sizes."""
METHODS = frozenset(("state_dict", "load_state_dict", "_save_to_state_dict", "_load_from_state_dict"))
HOOKS = (
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
)  # fmt: skip
MADE_ANEW = "a new process makes it anew, as the script's lines have it"
SINCE = "when cockpit.session was called"
CANNOT = "a new process that runs the same lines could not restore it"
MAY_NOT = "a new process that runs the same lines may not be able to restore it"


class Build(NamedTuple):
    """Of one thing. ``groups``: how many parameters each group of an optimizer holds; ``sizes``: of a module, by key,
    None where it is not made yet; ``own``: beginnings of keys that are saved or loaded in a way of their own."""

    groups: tuple[int, ...] = ()
    sizes: dict[str, tuple[int, ...] | None] | None = None
    own: frozenset[str] = frozenset()


class Difference(NamedTuple):
    """``sure``: loading would fail, by torch's own rules."""

    words: str
    sure: bool

    @property
    def sentence(self) -> str:
        """Without its end."""
        return "%s: %s" % (self.words, CANNOT if self.sure else MAY_NOT)


class Structure:
    """Of all things, as they are now."""

    def __init__(self, torch: Any, things: dict[str, Any], steppers: Callable[[], list[Any]] = list) -> None:
        self._torch, self._things, self._steppers = torch, things, steppers
        self._builds = {name: _build(torch, thing) for name, thing in things.items()}
        self.cannot: str | None = None
        """What a new process could not load, as things are; None where nothing of that kind is known."""
        self.doubt: str | None = None
        """The same where the script's own ways of loading decide."""

    def look(self) -> bool:
        """Compare them with what they are now; whether that is news."""
        before, change = (self.cannot, self.doubt), self._change()
        words = change.sentence if change is not None else None
        self.cannot, self.doubt = (words, None) if change is not None and change.sure else (None, words)
        self.doubt = self.doubt or self._left_out()
        return before != (self.cannot, self.doubt)

    def _left_out(self) -> str | None:
        """An optimizer that has moments by now and is in nothing of torch's that was given; objects of the script's own
        may hold it, and then nothing is said."""
        if not all(map(self._is_plain, self._things.values())):
            return None
        given = set(map(id, self._things.values()))
        missing = [each for each in self._steppers() if id(each) not in given and each.state]
        if not missing:
            return self._unscheduled()
        return "%s was not given to cockpit.session: in a new process it begins anew" % (
            "the script's %s" % type(missing[0]).__name__
            if len(missing) == 1
            else "a part of the script's optimizers (%s)" % ", ".join(type(each).__name__ for each in missing)
        )

    def _unscheduled(self) -> str | None:
        """A scheduler leaves its mark on the optimizer whose rates it sets, and knows it."""
        given = [each for thing in self._things.values() for each in (thing, *getattr(thing, "__dict__", {}).values())]
        scheduled = {id(getattr(each, "optimizer", None)) for each in given if _is_scheduler(each)}
        for name, thing in self._things.items():
            groups = thing.param_groups if isinstance(thing, sys.modules["torch.optim.optimizer"].Optimizer) else ()
            if id(thing) not in scheduled and any("initial_lr" in group for group in groups):
                return "the scheduler of %s was not given to cockpit.session: %s" % (name, MADE_ANEW)
        return None

    def _is_plain(self, thing: Any) -> bool:
        modules = isinstance(thing, self._torch.nn.Module) and _is_kind_of_torchs(cast(Hashable, type(thing)))
        return modules or type(thing).__module__.startswith("torch.") or _is_scheduler(thing)

    def _change(self) -> Difference | None:
        found = []
        for name, was in self._builds.items():
            now = _build(self._torch, self._things[name])
            if was is not None and now is not None:
                found += _groups_changed(name, was, now) + _sizes_changed(name, was, now)
        # what would surely not load comes first
        return min(found, key=lambda each: not each.sure, default=None)


def _is_scheduler(thing: Any) -> bool:
    """It knows its optimizer, and its state has nothing of that."""
    return isinstance(thing, sys.modules["torch.optim.lr_scheduler"].LRScheduler)


def _build(torch: Any, thing: Any) -> Build | None:
    """None where nobody can tell: schedulers, scalers and objects of the script's own load what they are given."""
    found: Build | None = attempt(_built, torch, thing)[0]
    return found


def _built(torch: Any, thing: Any) -> Build | None:
    if isinstance(thing, torch.nn.Module):
        sizes: dict[str, tuple[int, ...] | None] = {}
        own: set[str] = set()
        _walk(thing, "", sys.modules["torch.nn.parameter"].is_lazy, sizes, own)
        return Build((), sizes, frozenset(own))
    if isinstance(thing, sys.modules["torch.optim.optimizer"].Optimizer):
        groups = tuple(len(group["params"]) for group in thing.param_groups)
        return Build(groups, None, frozenset() if _is_torchs_own(thing) else frozenset({""}))
    return None


def _walk(module: Any, before: str, is_lazy: Any, sizes: dict[str, tuple[int, ...] | None], own: set[str]) -> None:
    """As ``nn.Module.state_dict`` goes, with the same keys."""
    if not _is_torchs_own(module):
        own.add(before)
    fields = vars(module)
    passing = fields["_non_persistent_buffers_set"]
    for kind in ("_parameters", "_buffers"):
        for name, tensor in fields[kind].items():
            if tensor is not None and name not in passing:
                sizes[before + name] = None if is_lazy(tensor) else tensor.shape
    for name, child in fields["_modules"].items():
        if child is not None:
            _walk(child, "%s%s." % (before, name), is_lazy, sizes, own)


def _is_torchs_own(thing: Any) -> bool:
    """Whether it saves and loads as torch has it, with nothing hooked in."""
    fields, kind = vars(thing), cast(Hashable, type(thing))
    return _is_kind_of_torchs(kind) and METHODS.isdisjoint(fields) and not any(map(fields.get, HOOKS))


@functools.lru_cache(256)  # of thousands of modules, few kinds
def _is_kind_of_torchs(kind: Any) -> bool:
    methods = [getattr(kind, name, None) for name in METHODS]
    return all(each is None or getattr(each, "__module__", None) in TORCHS_OWN for each in methods)


def _groups_changed(name: str, was: Build, now: Build) -> list[Difference]:
    sure = not was.own and not now.own
    if len(was.groups) != len(now.groups):
        has = counted(len(now.groups), "parameter group")
        return [Difference("%s has %s now and had %d %s" % (name, has, len(was.groups), SINCE), sure)]
    return [
        Difference("group %d of %s holds %s now and held %d %s" % (at, name, counted(b, "parameter"), a, SINCE), sure)
        for at, (a, b) in enumerate(zip(was.groups, now.groups))
        if a != b
    ][:1]


def _sizes_changed(name: str, was: Build, now: Build) -> list[Difference]:
    if was.sizes is None or now.sizes is None:
        return []
    own = was.own | now.own
    found = []
    for key in [*was.sizes, *(key for key in now.sizes if key not in was.sizes)]:
        words = _said(name, key, was.sizes, now.sizes)
        if words is not None:
            found.append(Difference(words, not any(key.startswith(each) for each in own)))
    return found


def _said(name: str, key: str, was: dict[str, Any], now: dict[str, Any]) -> str | None:
    if key not in now:
        return "%s has no %s any more and had it %s" % (name, key, SINCE)
    if key not in was:
        return "%s has %s now and had not %s" % (name, key, SINCE)
    a, b = was[key], now[key]
    if a is None or b is None or a == b or (a == () and len(b) == 1):
        return None  # made by its first forward; or a number kept as a list of one, which torch takes
    return "%s of %s is %s now and was %s %s" % (key, name, _shape(b), _shape(a), SINCE)


def _shape(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size)) or "a number"

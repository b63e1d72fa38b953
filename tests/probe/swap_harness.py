"""Drives the swap mechanism as the probe's hooks do, without them: patched ``__iter__`` and ``__next__``, a schedule.

``Harness`` is a context manager. ``boundary[epoch]`` and ``now[(epoch, batch)]`` are groups (or dicts of knobs) for
the loaders it watches; what happened stands in ``swaps`` and ``notices``. Real torch, real workers.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_loader

from cockpit.probe.swap import LoaderControl, install, is_source


def children() -> set[int]:
    """Process ids of this process's children, but for those that stay: multiprocessing's own tracker, and the one that
    other tests fork their trainings from."""
    me = os.getpid()
    pids = Path("/proc/%d/task/%d/children" % (me, me)).read_text().split()
    stays = {pid for pid in pids if b"/forked.py\0" in _command(pid)}
    return {int(pid) for pid in pids if pid not in stays} - {resource_tracker._resource_tracker._pid}  # type: ignore[attr-defined]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Harness:
    def __init__(self, boundary: Any = None, now: Any = None, only: Any = None) -> None:
        self.boundary, self.now, self.only = dict(boundary or {}), dict(now or {}), only
        self.mechanism = install(torch)
        self.controls: Any = weakref.WeakKeyDictionary()
        self.of_iterator: Any = weakref.WeakKeyDictionary()
        self.swaps: list[Any] = []
        self.notices: list[Any] = []
        self.samples: list[Any] = []
        self.pids: set[int] = set()
        self.groups: Any = weakref.WeakKeyDictionary()
        self.epochs: Any = weakref.WeakKeyDictionary()
        self.learnt: Any = None
        self.pending: Any = {}

    def __enter__(self) -> Harness:
        self._iter, self._next = DataLoader.__iter__, torch_loader._BaseDataLoaderIter.__next__
        harness = self

        def patched_iter(loader: Any) -> Any:
            return harness._begin(loader)

        def patched_next(iterator: Any) -> Any:
            return harness._step(iterator)

        DataLoader.__iter__ = patched_iter  # type: ignore[method-assign]
        torch_loader._BaseDataLoaderIter.__next__ = patched_next  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        DataLoader.__iter__ = self._iter  # type: ignore[method-assign]
        torch_loader._BaseDataLoaderIter.__next__ = self._next  # type: ignore[method-assign]

    def control(self, loader: Any) -> LoaderControl:
        if loader not in self.controls:
            self.controls[loader] = LoaderControl(self.mechanism, loader, learnt=self.learnt)
        return self.controls[loader]  # type: ignore[no-any-return]

    def _begin(self, loader: Any) -> Any:
        if self.only is not None and loader is not self.only:
            return self._iter(loader)
        control = self.control(loader)
        epoch = self.epochs[loader] = self.epochs.get(loader, -1) + 1
        if epoch in self.boundary:
            self.groups[loader] = self._group(control, self.boundary[epoch], loader)
        iterator = control.open(self._iter, self.groups.get(loader))
        self._collect(control, iterator)
        self.newest = weakref.ref(iterator)
        self.of_iterator[iterator] = (weakref.ref(loader), control, epoch, [0])
        return iterator

    def _group(self, control: LoaderControl, asked: Any, loader: Any = None) -> Any:
        base = self.groups.get(loader) if loader is not None else None
        return control.plan(asked, base=base) if isinstance(asked, dict) else asked

    def _step(self, iterator: Any) -> Any:
        known = self.of_iterator.get(iterator)
        if known is None or is_source(iterator):
            return self._next(iterator)
        ref, control, epoch, count = known
        asked = self.now.get((epoch, count[0]), self.pending.pop(iterator, None) if self.pending else None)
        if asked is not None:
            group = self._group(control, asked, ref())
            done = control.swap(iterator, group)
            if done is None:
                self.pending[iterator] = group
            else:
                self.swaps.append(done)
                if ref() is not None and not done.failed:
                    self.groups[ref()] = group
        count[0] += 1
        try:
            return self._next(iterator)
        finally:
            self._collect(control, iterator)
            self.samples.append(iterator.__dict__.get("_cockpit_samples", "untouched"))
            self.pids.update(control.workers(iterator))

    def _collect(self, control: LoaderControl, iterator: Any) -> None:
        for notice in control.take_notices():
            self.notices.append(notice)
            loader = control._loader()
            if loader is not None:
                self.groups[loader] = notice.in_force

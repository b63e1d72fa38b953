"""Turns what the training's thread has left behind into messages: ticks, blocks, loaders, hello.

Runs in the probe's thread only, and only reads plain numbers and records: it never touches a loader, an iterator
or a tensor, since dropping the last reference to one of those here would shut its workers down in this thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple, Optional

from ..model.knobs import LOADER_KNOBS, SCRIPT, Value
from ..model.names import SCHEMA
from .job import Job, accelerator
from .recorder import Mark, Recorder, sums_of
from .row import Row
from .streams import TRAIN, LoaderRecord

BLOCK_STEPS = 10
BLOCK_NS = 500_000_000
_PHASES = ("wait", "start", "forward", "backward", "optimizer")


class Known(NamedTuple):
    """Which figures can be told as things are; the others are None, never 0."""

    wait: bool
    samples: bool
    forward: bool


def known(recorder: Recorder, off: Mapping[str, str]) -> Known:
    """Without a loader that we see there is no wait and no batch; read ahead, its wait is not the training's."""
    loader = "loaders" not in off and (recorder.read_ahead or not recorder.loaderless)
    return Known(loader and not recorder.read_ahead, loader, recorder.forward_seen and "forward" not in off)


def _difference(a: Mark, b: Mark, known: Known) -> dict[str, Any]:
    return {
        "samples": b.samples - a.samples if b.unsized == a.unsized and known.samples else None,
        "wall_ns": b.lived_ns - a.lived_ns,
        "wait_ns": b.wait_ns - a.wait_ns if known.wait else None,
        "start_ns": b.start_ns - a.start_ns,
        "forward_ns": b.forward_ns - a.forward_ns if known.forward else None,
        "backward_ns": b.backward_ns - a.backward_ns,
        "optimizer_ns": b.optimizer_ns - a.optimizer_ns,
    }


def _sum(parts: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        out[name] = None if any(value is None for value in values) else sum(values)
    return out


class Blocks:
    """Groups ended steps into blocks of whole, consecutive steps under one setting."""

    def __init__(self) -> None:
        self._previous: Mark | None = None
        self._first: Mark | None = None
        self._parts: list[dict[str, Any]] = []

    def feed(self, marks: Iterable[Mark], known: Known) -> list[dict[str, Any]]:
        """The blocks completed by these marks. A gap between epochs does not break a block, a change does."""
        blocks = []
        for mark in marks:
            before, self._previous = self._previous, mark
            if mark.step is None or before is None:
                continue
            if self._first is not None and self._first.setting is not mark.setting:
                self._parts = []
            if not self._parts:
                self._first = mark
            self._parts.append(_difference(before, mark, known))
            block = self._whole(mark)
            if block is not None:
                blocks.append(block)
        return blocks

    def _whole(self, last: Mark) -> dict[str, Any] | None:
        steps = len(self._parts)
        if steps < max(BLOCK_STEPS, last.setting.workers) or sum(p["wall_ns"] for p in self._parts) < BLOCK_NS:
            return None
        sums, self._parts = _sum(self._parts), []
        return {
            "m": "block", "step": last.step, "steps": steps, "epoch": last.epoch,
            "change": last.setting.change, "capacity": last.setting.capacity, **sums,
        }  # fmt: skip


class Ticks:
    """About five times a second: sums since the last tick, and what the training's thread is doing right now."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._last: dict[str, Any] | None = None

    def read(self, now: int, hooks: Any, known: Known, compiled: Any = (0, 0, 0)) -> dict[str, Any]:
        """The tick at ``now``; the first one reaches back to the beginning of the first step.

        ``compiled``: nanoseconds, graphs and recompilations so far, None where not known.
        """
        recorder = self._recorder
        seen = self._consistent(now)
        last = self._last or {**dict.fromkeys(seen, 0), "t": now - seen["lived"]}
        self._last = seen
        names = (*_PHASES, "steps", "samples", "lived")
        sums: dict[str, Any] = {name: max(0, seen[name] - last[name]) for name in names}
        for name in known._fields:
            if not getattr(known, name):
                sums[name] = None
        if seen["unsized"] != last["unsized"]:
            sums["samples"] = None
        epoch, first_step = recorder.latest_epoch
        return {
            "m": "tick", "t_ns": now, "span_ns": max(0, now - last["t"]), "step": recorder.steps,
            "epoch": epoch, "step_in_epoch": None if first_step is None else recorder.steps - first_step,
            "optimizer_steps": recorder.optimizer_steps if recorder.optimizer_seen else None,
            "steps": sums["steps"], "samples": sums["samples"],
            "wall_ns": sums["lived"], "wait_ns": sums["wait"],
            "start_ns": sums["start"], "forward_ns": sums["forward"],
            "backward_ns": sums["backward"], "optimizer_ns": sums["optimizer"], "doing": seen["doing"],
            "doing_ns": max(0, now - seen["since"]), "queue": hooks.queue,
            "wait_kind": "read_ahead" if recorder.read_ahead else hooks.wait_kind,
            "compile_ns": compiled[0], "graphs": compiled[1], "recompiles": compiled[2],
        }  # fmt: skip

    def _consistent(self, now: int) -> dict[str, Any]:
        """The totals of all steps, the one under way counted up to ``now``; read again if a phase ended meanwhile."""
        recorder = self._recorder
        for _ in range(3):
            doing, since, base, told = recorder.doing, recorder.since, recorder.base, recorder.told
            held, (rest, skipped) = recorder.held_since, told
            # in a pause the script's handlers may do this and that
            apart = now - (held or (since if doing == "compile" else now))
            lived = base.lived_ns + max(0, now - base.t_ns - apart) if base is not None else 0
            totals = rest or recorder.mark(now, lived)
            seen: dict[str, Any] = {"steps": recorder.steps, "t": now, "lived": totals.lived_ns}
            again = recorder.doing, recorder.since, recorder.base, recorder.told, recorder.held_since
            if (doing, since, base, told, held) == again:
                break
        for name, total, gaps in zip((*_PHASES, "samples", "unsized"), sums_of(totals), skipped):
            seen[name] = total - gaps
        phase = {"loader": "wait", "loader_start": "start"}.get(doing, doing)
        if rest is None and base is not None and phase in _PHASES:
            seen[phase] += max(0, now - max(since, base.t_ns))
        seen.update(doing=doing, since=since)
        return seen


def hello_message(torch_version: str, job: Job, trains: bool) -> dict[str, Any]:
    """Who speaks: the first word of every connection."""
    return {
        "m": "hello", "schema": SCHEMA, "pid": os.getpid(), "ppid": os.getppid(), "rank": job.rank(),
        "world": job.world(), "python": "%d.%d.%d" % sys.version_info[:3], "torch": torch_version,
        "argv": list(getattr(sys, "orig_argv", sys.argv)), "accelerator": accelerator(), "trains": trains,
    }  # fmt: skip


Foreseen = tuple[Mapping[str, Value], Optional[str]]
Foresight = Callable[[LoaderRecord], Foreseen]
BatchRow = Callable[[LoaderRecord, Optional[str]], Row]


def loader_message(
    records: Iterable[LoaderRecord],
    off: str | None,
    rows: Iterable[Row] = (),
    batch_row: BatchRow | None = None,
    foresee: Foresight = lambda record: ({}, None),
) -> dict[str, Any]:
    """All loaders of this process, as plain values of ``model.events.LoaderInfo``; ``off``: why none can change.

    ``rows`` are the knobs of the whole training, told beside them: a training without a loader has them too.
    ``batch_row`` tells of one loader's batch size, ``foresee`` of what waits for its other knobs.
    """
    loaders = [_loader(record, off, batch_row, foresee(record)) for record in list(records) if record.iterators]
    return {"m": "loaders", "loaders": loaders, "kernels": [row._asdict() for row in rows]}


def _loader(record: LoaderRecord, off: str | None, batch_row: BatchRow | None, foreseen: Foreseen) -> dict[str, Any]:
    off = off or record.unfed
    knobs = [_knob(record, name, off, foreseen) for name in LOADER_KNOBS]
    if batch_row is not None and record.batch is not None:
        knobs.append(batch_row(record, off))
    return {
        "id": record.id, "role": record.role, "kind": record.kind, "epochs": record.epochs,
        "steps_per_epoch": None if record.unfed else record.steps_per_epoch, "batch_size": record.batch_size,
        "knobs": [row._asdict() for row in knobs], "workers": list(record.workers), "capacity": record.capacity,
        "read_ahead": record.read_ahead, "unfed": record.unfed is not None,
        "boundaries": record.iterators > 1 and record.unfed is None,
        "samples_by_epoch": list(record.samples_by_epoch), "epoch_start_ms": record.epoch_start_ms,
    }  # fmt: skip


def _knob(record: LoaderRecord, name: str, off: str | None, foreseen: Foreseen) -> Row:
    refusal = record.refusals.get(name)
    can, can_now, reason, note = refusal or (True, record.kind == "map", None, None)
    waiting, words = foreseen
    if words is not None and name == next(iter(waiting)):
        note = words if note is None else "%s; %s" % (words, note)
    script = getattr(record.script, name, None)
    asked = script if waiting.get(name) == SCRIPT else waiting.get(name)
    here, told = off is None, off or record.reasons.get(name) or reason
    return Row(name, script, getattr(record.in_force, name, None), can and here, can_now and here, told, note, asked)


def trains(records: Iterable[LoaderRecord]) -> bool:
    """Whether any of them is known to train."""
    return any(record.role == TRAIN for record in records)

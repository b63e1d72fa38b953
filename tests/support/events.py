"""Scripted events for tests: a run told in a few words. Times count from 1000 s; every figure can be given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cockpit.model.events import (
    BlockMeasured,
    ChangeAsked,
    ChangeMoved,
    Event,
    KnobReport,
    LoaderInfo,
    MachineSeen,
    ProbeConnected,
    ProcessStarted,
    RunStarted,
    Sampled,
)

BEGAN_S = 1000.0


def beginning(script: str = "train.py", setup: Mapping[str, Any] | None = None) -> list[Event]:
    """Started, on a machine of two CPUs, with a probe and one training loader without workers."""
    return [
        RunStarted(BEGAN_S, "train-3f", ("python", script), "/home/a", script, setup or {}),
        ProcessStarted(BEGAN_S, 4711),
        MachineSeen(BEGAN_S, 2.0, "affinity", (0, 1)),
        ProbeConnected(BEGAN_S + 1, 4711, "2.14.1", "3.11.2"),
    ]


def knob(name: str, script: Any, in_force: Any = None, **more: Any) -> KnobReport:
    """What the probe reports of one knob."""
    return KnobReport(name, script, script if in_force is None else in_force, **more)


def loader(
    name: str = "train.py:41", role: str = "train", knobs: tuple[KnobReport, ...] = (), **more: Any
) -> LoaderInfo:
    """A loader with the knobs given, else one without workers."""
    return LoaderInfo(name, role, "map", knobs=knobs or (knob("num_workers", 0), knob("pin_memory", False)), **more)


def block(
    at_s: float,
    step: int,
    rate: float = 100.0,
    *,
    steps: int = 20,
    batch: int = 8,
    change: str | None = None,
    capacity: int = 0,
    wait_share: float = 0.5,
    epoch: int = 0,
) -> BlockMeasured:
    """A block of ``steps`` steps at ``rate`` samples per second."""
    wall = steps * batch / rate
    return BlockMeasured(
        at_s=at_s,
        step=step,
        steps=steps,
        samples=steps * batch,
        wall_s=wall,
        wait_s=wait_share * wall,
        start_s=0.0,
        forward_s=0.1 * wall,
        backward_s=0.2 * wall,
        optimizer_s=0.05 * wall,
        epoch=epoch,
        change=change,
        capacity=capacity,
    )


class Story:
    """Tells a run block by block, keeping time and step."""

    def __init__(self, at_s: float = BEGAN_S + 2.0) -> None:
        self.at_s, self.step = at_s, 0
        self.change: str | None = None
        self.capacity = 0

    def blocks(self, rates: list[float], *, steps: int = 200, **more: Any) -> Iterator[Event]:
        """One block for each rate (200 steps of 8 at 100 samples/s last 16 s: a window by itself)."""
        for rate in rates:
            self.step += steps
            made = block(self.at_s, self.step, rate, steps=steps, change=self.change, capacity=self.capacity, **more)
            self.at_s += made.wall_s
            yield made

    def asked(self, change: str, knobs: Mapping[str, Any], **more: Any) -> Event:
        """Somebody asks."""
        return ChangeAsked(self.at_s, change, knobs, **more)

    def moved(self, change: str, state: str, **more: Any) -> Event:
        """The probe reports; a change that settles is what later blocks are measured under."""
        if state == "settling":
            self.change, self.capacity = change, int(more.get("capacity", 0))
        return ChangeMoved(self.at_s, change, state, step=self.step, **more)

    def landed(self, change: str, before: Mapping[str, Any], in_force: Mapping[str, Any], **more: Any) -> list[Event]:
        """Asked, applied and in force, all at once."""
        return [
            self.asked(change, in_force),
            self.moved(change, "applying"),
            self.moved(change, "settling", before=before, in_force=in_force, stall_ms=80.0, **more),
        ]


def sample(at_s: float, **more: Any) -> Sampled:
    """Half a second of a run."""
    return Sampled(at_s, 0.5, **more)


NOISY = [100.0, 101.0, 99.5, 100.5, 99.0, 101.5, 100.2, 99.8, 100.9]
"""Rates of a calm run: about 1 % of noise."""

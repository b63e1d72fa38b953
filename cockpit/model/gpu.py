"""What one accelerator reports of itself, as frozen figures: made by the sensors, carried by events, drawn by screens.

None is "not measured" and never 0. A figure whose source nobody has seen working on real hardware says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuFigures:
    """One device, by the name that its driver knows it by.

    ``kernel_active_share`` (0..1): some kernel ran, not how much of the device it used. Memory is of the whole device,
    all processes. ``throttled``: reasons why it runs slower than it could, () for none, None where not measured.
    ``trouble``: a sentence about the whole device, ``gone``: it is lost until somebody repairs it.
    ``missing``: what is not told, and why. ``source`` and ``verified`` belong to every figure here.
    """

    uuid: str
    name: str | None = None
    mig: bool = False
    kernel_active_share: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    throttled: tuple[str, ...] | None = None
    trouble: str | None = None
    gone: bool = False
    missing: Mapping[str, str] | None = None
    source: str | None = None
    verified: bool = False


@dataclass(frozen=True)
class GpuSampled:
    """The accelerators that the run uses, about once a second. ``trouble``: why nothing is told about any of them."""

    at_s: float
    devices: tuple[GpuFigures, ...] = ()
    trouble: str | None = None
    driver: str | None = None

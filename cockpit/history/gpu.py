"""The accelerators in the state: how old their figures may be, and how other people's tools read them. Pure.

Called by fold and status. It must never hand on a figure of a device that is not read any more.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from cockpit.model.gpu import GpuFigures, GpuSampled

from .state import State

STALE_S = 20.0
"""Readings come about once a second, at least every time something changes."""


def at_rest(seen: GpuSampled | None) -> GpuSampled | None:
    """After the training's end: which devices it had, and no figure of what others do on them now."""
    return None if seen is None else replace(seen, devices=tuple(bare(device) for device in seen.devices))


def bare(device: GpuFigures) -> GpuFigures:
    """The device without its figures."""
    return GpuFigures(device.uuid, device.name, device.mig, memory_total_bytes=device.memory_total_bytes)


def lead_device(state: State) -> GpuFigures | None:
    """The device that the charts show: the first of the lowest rank that uses one; None where there is none."""
    seen = state.gpu
    if seen is None or not seen.devices:
        return None
    ranks = sorted((rank for rank in state.ranks if rank.devices), key=lambda rank: (rank.rank is None, rank.rank or 0))
    # torch leaves out the prefix that the driver puts before a device's name
    named = ranks[0].devices[0] if ranks else ""
    return next((one for one in seen.devices if named and one.uuid.endswith(named)), seen.devices[0])


def lead_share(state: State, at_s: float) -> float | None:
    """Kernel-active share of the lead device at ``at_s``; None where nothing is told, or it was told too long ago."""
    lead, seen = lead_device(state), state.gpu
    if lead is None or seen is None or lead.trouble is not None or at_s - seen.at_s > STALE_S:
        return None
    return lead.kernel_active_share


def uses_gpu(state: State) -> bool | None:
    """Whether this training uses a GPU, whatever the machine has; None where no step, or nobody, has told."""
    if state.gpu is not None or any(rank.accelerator or rank.devices for rank in state.ranks):
        return True
    return False if state.step and state.ranks else None


def gpus_of(state: State, now_s: float) -> list[dict[str, Any]]:
    """``machine.gpus`` of the status: one object a device; null = not measured, or too old to be true at ``now_s``."""
    seen = state.gpu
    if seen is None:
        return []
    old = now_s - seen.at_s > STALE_S and state.phase in ("starting", "running", "stopping")
    return [_plain(replace(bare(one), trouble="not read any more") if old else one) for one in seen.devices]


def _plain(device: GpuFigures) -> dict[str, Any]:
    told = asdict(device)
    told["throttled"] = None if device.throttled is None else list(device.throttled)
    told["missing"] = dict(device.missing or {})
    return told

"""The accelerators as rows, one line a device under the cores; ``card`` draws them where there is room. Pure.

It says what each figure is (kernel active, not "busy"), where it comes from and that it is unverified; what was not
told is left out or gives its reason, and is never 0.
"""

from __future__ import annotations

from cockpit.model.counts import counted
from cockpit.model.gpu import GpuFigures

from .clean import clean
from .format import NOTHING, known, share
from .rows import Row, Run, fit, spread, width_of
from .view import View


def gpu_rows(view: View, width: int, label: int, at_most: int) -> list[Row]:
    """A row a device, at most so many; none where the run has no accelerator that we know of."""
    seen = view.known.gpu
    if seen is None or at_most <= 0:
        return []
    if not seen.devices:
        return [fit([("gpu".ljust(label), "dim"), (clean(seen.trouble), "dim")], width)] if seen.trouble else []
    shown = seen.devices[: at_most if len(seen.devices) <= at_most else at_most - 1]
    found = [_device_row(view, device, width, label) for device in shown]
    left = seen.devices[len(shown) :]
    if left:
        name, words = ("", f"and {len(left)} more") if shown else ("gpu", counted(len(left), "device"))
        tail: list[Run] = [(f" {source_of(left[0])}", "faint")]
        found.append(spread([(name.ljust(label), "dim"), (f"{words}, {_together(left)}", "text")], tail, width))
    return found


def _together(devices: tuple[GpuFigures, ...]) -> str:
    """Devices that have no row of their own: the least busy of them, since that one tells most."""
    active = [one.kernel_active_share for one in devices if one.trouble is None]
    least = min((value for value in active if value is not None and known(value)), default=None)
    ill = sum(device.trouble is not None for device in devices)
    words = "kernel active not measured" if least is None else f"lowest measured {share(least)} kernel active"
    return words + (f", {ill} in trouble" if ill else "")


def _device_row(view: View, device: GpuFigures, width: int, label: int) -> Row:
    start: list[Run] = [("gpu".ljust(label), "dim")]
    if device.trouble is not None:
        style = "bold alarm" if device.gone else "dim"
        return fit([*start, (f"{name_of(device)}: {clean(device.trouble)}", style)], width)
    parts = [active_runs(device), *(part for part in (throttled_runs(device), *_rest(device)) if part)]
    tail: list[Run] = [(f" {source_of(device)}", "faint")]
    room = width - width_of(start) - width_of(tail)
    return spread([*start, *_joined(view, parts, room)], tail, width)


def _joined(view: View, parts: list[list[Run]], room: int) -> list[Run]:
    """As many whole parts as there is room for, the first in any case: half a figure would be a wrong one."""
    found = list(parts[0])
    for part in parts[1:]:
        more: list[Run] = [(f" {view.glyphs.dot} ", "faint"), *part]
        if width_of(found) + width_of(more) <= room:
            found += more
    return found


def active_runs(device: GpuFigures) -> list[Run]:
    """``94% kernel active``, or why that is not told."""
    reason = (device.missing or {}).get("utilisation")
    if device.kernel_active_share is None:
        return [(clean(reason) if reason else NOTHING, "dim"), (" kernel active", "dim")]
    return [(share(device.kernel_active_share, 4).strip(), "bold"), (" kernel active", "dim")]


def throttled_runs(device: GpuFigures) -> list[Run]:
    """Why it runs slower than it could; nothing where it does not, or does not tell."""
    return [(f"throttled: {', '.join(map(clean, device.throttled))}", "bold alarm")] if device.throttled else []


def _rest(device: GpuFigures) -> list[list[Run]]:
    watts = amount(device.power_w, device.power_limit_w, "W", 1.0)
    memory = amount(device.memory_used_bytes, device.memory_total_bytes, "GiB", 2.0**30)
    degrees = "" if device.temperature_c is None else f"{device.temperature_c} °C"
    clock = amount(device.sm_clock_mhz, device.sm_clock_max_mhz, "MHz", 1.0)
    return [[(text, "text")] for text in (memory, watts, degrees, clock) if text]


def amount(value: float | None, limit: float | None, unit: str, by: float) -> str:
    """``30.0 of 80.0 GiB``; without its limit where that is not known; empty where nothing is."""
    if value is None or not known(value):
        return f"{limit / by:.{_places(by)}f} {unit}" if limit is not None and by > 1.0 and known(limit) else ""
    most = f" of {limit / by:.{_places(by)}f}" if limit is not None and known(limit) else ""
    return f"{value / by:.{_places(by)}f}{most} {unit}"


def _places(by: float) -> int:
    return 1 if by > 1.0 else 0


def name_of(device: GpuFigures) -> str:
    """What people call it, and the end of what the driver calls it: numbers would be another order's."""
    return f"{clean(device.name or 'gpu')} {clean(device.uuid)[-6:]}"


def source_of(device: GpuFigures) -> str:
    """Who told the figures, and whether anybody has yet seen that it tells them right."""
    told = clean(device.source or "")
    return told if device.verified or not told else f"{told} (unverified)"

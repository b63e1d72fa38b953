"""The accelerators as rows: one line a device under the cores, a card on wide screens. Pure; called by the frame.

It says what each figure is (kernel active, not "busy"), where it comes from and that it is unverified; what was not
told is left out or gives its reason, and is never 0.
"""

from __future__ import annotations

from cockpit.model.gpu import GpuFigures

from .clean import clean
from .format import NOTHING, known, share
from .rows import Row, Run, cut, fit, row, spread, width_of
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
        name, words = ("", f"and {len(left)} more") if shown else ("gpu", f"{len(left)} devices")
        tail: list[Run] = [(f" {_source(left[0])}", "faint")]
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
        return fit([*start, (f"{_name(device)}: {clean(device.trouble)}", style)], width)
    parts = [_active(device), *(part for part in (_throttled(device), *_rest(device)) if part)]
    tail: list[Run] = [(f" {_source(device)}", "faint")]
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


def _active(device: GpuFigures) -> list[Run]:
    reason = (device.missing or {}).get("utilisation")
    if device.kernel_active_share is None:
        return [(clean(reason) if reason else NOTHING, "dim"), (" kernel active", "dim")]
    return [(share(device.kernel_active_share, 4).strip(), "bold"), (" kernel active", "dim")]


def _throttled(device: GpuFigures) -> list[Run]:
    return [(f"throttled: {', '.join(map(clean, device.throttled))}", "bold alarm")] if device.throttled else []


def _rest(device: GpuFigures) -> list[list[Run]]:
    watts = _of(device.power_w, device.power_limit_w, "W", 1.0)
    memory = _of(device.memory_used_bytes, device.memory_total_bytes, "GiB", 2.0**30)
    degrees = "" if device.temperature_c is None else f"{device.temperature_c} °C"
    clock = _of(device.sm_clock_mhz, device.sm_clock_max_mhz, "MHz", 1.0)
    return [[(text, "text")] for text in (memory, watts, degrees, clock) if text]


def _of(value: float | None, limit: float | None, unit: str, by: float) -> str:
    """``30.0 of 80.0 GiB``; without its limit where that is not known; empty where nothing is."""
    if value is None or not known(value):
        return f"{limit / by:.{_places(by)}f} {unit}" if limit is not None and by > 1.0 and known(limit) else ""
    most = f" of {limit / by:.{_places(by)}f}" if limit is not None and known(limit) else ""
    return f"{value / by:.{_places(by)}f}{most} {unit}"


def _places(by: float) -> int:
    return 1 if by > 1.0 else 0


def _name(device: GpuFigures) -> str:
    """What people call it, and the end of what the driver calls it: numbers would be another order's."""
    return f"{clean(device.name or 'gpu')} {clean(device.uuid)[-6:]}"


def _source(device: GpuFigures) -> str:
    told = clean(device.source or "")
    return told if device.verified or not told else f"{told} (unverified)"


def gpu_card(view: View, width: int) -> list[Row]:
    """A heading, and for each device its name and its figures in two rows; nothing where there is no device."""
    seen = view.known.gpu
    if seen is None or not (seen.devices or seen.trouble):
        return []
    source = _source(seen.devices[0]) if seen.devices else ""
    rows = [spread([("GPU", "bold text")], [(source, "faint")], width)]
    if not seen.devices:
        return [*rows, fit([(clean(seen.trouble or ""), "dim")], width)]
    for device in seen.devices:
        rows.append(row((cut(_name(device), width), "text")))
        if device.trouble is not None:
            rows.append(fit([("  ", "dim"), (clean(device.trouble), "bold alarm" if device.gone else "dim")], width))
            continue
        parts = [_active(device), *(part for part in (_throttled(device), *_rest(device)) if part)]
        rows.append(fit([("  ", "dim"), *_joined(view, parts, width - 2)], width))
    return rows

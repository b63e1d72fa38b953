"""A card for each accelerator: its name, what it is at, and a gauge for each figure that has a limit. Pure.

Called by the frame where a column has room for it; with less room it falls back to one line a device. A figure that
is not told has no bar and gives its reason, so that an empty bar always means a measured zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.model.gpu import GpuFigures

from .clean import clean
from .format import NOTHING, known, share
from .gpu import amount, gpu_rows, name_of, source_of, throttled_runs
from .rows import BLANK, Row, Run, cut, fit, spread, width_of
from .view import View

ROWS = 3
"""Rows of one card."""
LEFT, RIGHT = (14, 13), (7, 17)
"""Columns of a gauge's name and figure, in the left half of a card and in the right one."""


@dataclass(frozen=True)
class Gauge:
    """A figure with its bar: ``full`` 0..1 (None: no bar), and the words at its right in their ``style``."""

    name: str
    full: float | None
    words: str
    style: str = "text"
    bar: str = "dim"


def card_rows(view: View, width: int, at_most: int) -> list[Row]:
    """A card a device where all of them fit, else a line a device; nothing where the run has none."""
    seen = view.known.gpu
    if seen is None or at_most <= 0 or width <= 0:
        return []
    heading = fit([("GPU", "bold text")], width)
    if not seen.devices:
        return [heading, fit([(clean(seen.trouble), "dim")], width)][:at_most] if seen.trouble else []
    if len(seen.devices) * ROWS > at_most:
        return [heading, *gpu_rows(view, width, 0, at_most - 1)][:at_most]
    return [each for device in seen.devices for each in _card(view, device, width)]


def _card(view: View, device: GpuFigures, width: int) -> list[Row]:
    source: list[Run] = [(f" {source_of(device)}", "faint")]
    title: list[Run] = [("GPU ", "bold text"), (cut(name_of(device), max(0, width - 5 - width_of(source))), "text")]
    if device.trouble is not None:
        words = cut(clean(device.trouble), max(0, width - 4))
        return [spread(title, source, width), fit([("    ", "dim"), (words, _ill(device))], width), BLANK]
    state = _state(view, device)
    if width_of(title) + width_of(state) + width_of(source) > width:
        title = [*title[:1], (cut(title[1][0], max(8, width - 4 - width_of(state) - width_of(source))), "text")]
    gauges = _gauges(device)
    half = (width - 3) // 2
    return [
        spread([*title, *state], source, width),
        *(
            fit([*_drawn(view, left, half, *LEFT), ("   ", "dim"), *_drawn(view, right, half, *RIGHT)], width)
            for left, right in zip(gauges[::2], gauges[1::2], strict=True)
        ),
    ]


def _ill(device: GpuFigures) -> str:
    return "bold alarm" if device.gone else "dim"


def _state(view: View, device: GpuFigures) -> list[Run]:
    """What has no limit to be drawn against: how warm it is, and whether it is held back."""
    between: Run = (f" {view.glyphs.dot} ", "faint")
    found: list[Run] = []
    if device.temperature_c is not None:
        found += [between, (f"{device.temperature_c} °C", "text")]
    if device.throttled:
        found += [between, *throttled_runs(device)]
    elif device.throttled is not None:
        found += [between, ("not throttled", "dim")]
    return found


def _gauges(device: GpuFigures) -> list[Gauge]:
    """The four figures with limits, always in the same places."""
    active = device.kernel_active_share
    return [
        _gauge(device, "kernel active", "utilisation", active, 1.0, "", 1.0),
        _gauge(device, "memory", "memory", device.memory_used_bytes, device.memory_total_bytes, "GiB", 2.0**30),
        _gauge(device, "power", "power", device.power_w, device.power_limit_w, "W", 1.0),
        _gauge(device, "clock", "clock", device.sm_clock_mhz, device.sm_clock_max_mhz, "MHz", 1.0),
    ]


def _gauge(
    device: GpuFigures, name: str, metric: str, value: float | None, limit: float | None, unit: str, by: float
) -> Gauge:
    if value is None or not known(value):
        reason = clean((device.missing or {}).get(metric) or "")
        return Gauge(name, None, reason if reason.startswith("N/A") else f"N/A, {reason}" if reason else NOTHING, "dim")
    full = value / limit if limit is not None and known(limit) and limit > 0 else None
    if not unit:  # a share, and the figure that the eye is to find first
        return Gauge(name, full, share(value), bar="model")
    return Gauge(name, full, amount(value, limit, unit, by))


def _drawn(view: View, gauge: Gauge, width: int, name: int, figure: int) -> list[Run]:
    glyphs = view.glyphs
    room = max(0, width - name - figure - 1)
    label: Run = (cut(gauge.name, name).ljust(name), "dim")
    if gauge.full is None:  # the words have the place of the bar too
        words = cut(gauge.words, figure + room)
        return list(fit([label, (words.rjust(figure + room + 1), gauge.style)], max(0, width)))
    done = round(room * max(0.0, min(1.0, gauge.full)))
    done = max(1, done) if gauge.full > 0.0 and room else done
    rest = glyphs.rest if glyphs.plain else glyphs.bar
    bar: list[Run] = [(glyphs.bar * done, gauge.bar), (rest * (room - done), "line")]
    return list(fit([label, *bar, (f" {cut(gauge.words, figure).rjust(figure)}", gauge.style)], max(0, width)))

"""Numbers as people read them: fixed places, units outside, a dash for what was not measured.

Called by every drawing function. None is never shown as 0, and a measured 0.0 never as a dash.
"""

from __future__ import annotations

import math

NOTHING = "–"


def known(value: float | None) -> bool:
    """Whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def rate(value: float | None, width: int = 0) -> str:
    """Samples per second: three figures at least, thousands set apart (``1 932``, ``31.8``, ``0.42``)."""
    if value is None or not math.isfinite(value):
        return NOTHING.rjust(width)
    if value >= 1e7:
        return f"{value:.2g}".rjust(width)
    size = abs(value)
    text = f"{value:,.0f}".replace(",", " ") if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
    return text.rjust(width)


def share(value: float | None, width: int = 0) -> str:
    """A share 0..1 as a whole percentage: ``28%``; under half a percent but measured: ``<1%``."""
    if value is None or not math.isfinite(value):
        return NOTHING.rjust(width)
    percent = 100.0 * value
    return ("<1%" if 0.0 < percent < 0.5 else f"{percent:.0f}%").rjust(width)


def delta(value: float | None, width: int = 0) -> str:
    """A difference in percent, with its sign: ``+37.7%``, ``-0.4%``; from 1000 on without the decimal."""
    if value is None or not math.isfinite(value):
        return NOTHING.rjust(width)
    return (f"{value:+.1f}%" if abs(value) < 999.95 else f"{value:+.0f}%").rjust(width)


def interval(low_high: tuple[float, float] | None) -> str:
    """An interval in percent, whole where it is wide: ``[+36.2, +39.1]``, ``[+89, +141]``; empty where unknown."""
    if low_high is None or not all(math.isfinite(edge) for edge in low_high):
        return ""
    low, high = low_high
    places = 1 if high - low < 10.0 and max(abs(low), abs(high)) < 100.0 else 0
    return f"[{low:+.{places}f}, {high:+.{places}f}]"


def reach(low_high: tuple[float, float] | None) -> str:
    """Half of an interval's width: ``±1.4``; empty where unknown."""
    if low_high is None or not all(math.isfinite(edge) for edge in low_high):
        return ""
    half = (low_high[1] - low_high[0]) / 2.0
    return f"±{half:.1f}" if half < 99.95 else f"±{half:.0f}"


def factor(value: float | None, times: str = "×", width: int = 0) -> str:
    """A ratio: ``×6.07``, ``×12.4``, ``×131``."""
    if value is None or not math.isfinite(value) or value < 0:
        return NOTHING.rjust(width)
    places = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return (times + (f"{value:.{places}f}" if value < 1e5 else f"{value:.1g}")).rjust(width)


def step_time(value_ms: float | None) -> str:
    """How long a step takes, with its unit: ``45.8 ms``, ``1.24 s``."""
    if value_ms is None or not math.isfinite(value_ms):
        return NOTHING
    if value_ms >= 999.5:
        seconds = value_ms / 1000.0
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"
    return f"{value_ms:.1f} ms" if value_ms >= 9.995 else f"{value_ms:.2f} ms"


def seconds(value_s: float | None) -> str:
    """A short time, with its unit: ``0.8 s``, ``14.2 s``, ``3:07``."""
    if value_s is None or not math.isfinite(value_s):
        return NOTHING
    return f"{value_s:.1f} s" if value_s < 99.95 else clock(value_s)


def clock(value_s: float | None) -> str:
    """A duration: ``0:31``, ``12:04``, ``3:07:00``, ``2d 04h``."""
    if value_s is None or not math.isfinite(value_s):
        return NOTHING
    whole = max(0, int(value_s))
    if whole >= 86400:
        return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"
    minutes, seconds = divmod(whole, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"


def count(value: int | None) -> str:
    """A whole number with its thousands set apart."""
    return NOTHING if value is None else f"{value:,}".replace(",", " ")


def cores(value: float | None) -> str:
    """Cores busy: ``1.7``, ``112``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"

"""Spans of time in words. Pure; used by report and by whoever tells how long something took."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A span of time as people say it: ``42 s``, ``3 min 10 s``, ``2 h 05 min``, ``3 d 04 h``."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 172800:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"

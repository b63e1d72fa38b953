"""Sizes of memory and files, as people say them. Used by every room; pure."""

from __future__ import annotations


def size_words(nbytes: float) -> str:
    """``2.9 GB``, ``512 MB``; what is there at all is no 0 MB."""
    if nbytes >= 0.9995e9:
        return "%.1f GB" % (nbytes / 1e9)
    return "%d MB" % (max(1, round(nbytes / 1e6)) if nbytes > 0 else 0)

"""Waiting for what is true before long, however busy the machine is. Called by tests and by what helps them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(
    check: Callable[[], Any], what: str | Callable[[], str], seconds: float = 30.0, every_s: float = 0.02
) -> Any:
    """The first true value of ``check``; fails with ``what``, asked then where it is a function."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := check():
            return found
        time.sleep(every_s)
    raise AssertionError(f"{what() if callable(what) else what}: not within {seconds} s")

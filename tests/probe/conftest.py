"""Fixtures of the probe's own tests."""

from __future__ import annotations

import sys

import pytest
from watched import watched


@pytest.fixture(autouse=True)
def nothing_compiled_yet():
    """The probe asks Dynamo whether this process has compiled anything: what other tests compiled is not meant."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is not None:
        counters.clear()


@pytest.fixture
def it(tmp_path, monkeypatch):
    """A watched process: see ``watched.Watched``."""
    with watched(tmp_path, monkeypatch) as inside:
        yield inside

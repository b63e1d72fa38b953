"""Fixtures of the probe's own tests."""

from __future__ import annotations

import pytest
from watched import watched


@pytest.fixture
def it(tmp_path, monkeypatch):
    """A watched process: see ``watched.Watched``."""
    with watched(tmp_path, monkeypatch) as inside:
        yield inside

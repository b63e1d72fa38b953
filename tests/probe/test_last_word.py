"""Who goes on begins with what has just landed: the training waits for the engine, and not for one that is gone."""

from __future__ import annotations

import json
import threading
import time

import pytest

from cockpit.probe.handoff import last_word
from cockpit.probe.handoff.last_word import wait_until_known


def write(folder, **start):
    (folder / "new").write_text(json.dumps(start))
    (folder / "new").rename(folder / "start.json")


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    monkeypatch.setattr(last_word, "WAITS_S", 0.3)


def test_what_landed_a_moment_ago_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(last_word, "WAITS_S", 60.0)
    write(tmp_path, set={}, landed=["c1"])
    threading.Timer(0.1, write, (tmp_path,), {"set": {"num_workers": 0}, "landed": ["c1", "c2"]}).start()
    wait_until_known(str(tmp_path), "c2")
    assert json.loads((tmp_path / "start.json").read_text())["set"] == {"num_workers": 0}


@pytest.mark.parametrize(
    ("start", "change", "waits"),
    [
        ({"landed": ["c1", "c2"]}, "c1", False),
        ({"landed": []}, None, False),
        ({}, "c1", False),  # an engine that does not say
        ({"landed": ["c1"]}, "c2", True),  # one that has just been killed
    ],
)
def test_it_waits_only_for_what_may_come_and_never_for_ever(tmp_path, start, change, waits):
    write(tmp_path, **start)
    began = time.monotonic()
    wait_until_known(str(tmp_path), change)
    wait_until_known(None, change)
    assert (time.monotonic() - began >= 0.3) is waits

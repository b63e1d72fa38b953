"""A run on made-up devices, seen through a real engine: what the probe names is what the status tells."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.waiting import wait_for

from cockpit.engine.hear import Ears
from cockpit.engine.start import Spec, start_run
from cockpit.history.journal import read_state
from cockpit.history.link import request
from cockpit.history.state import State

BUSY = {"uuid": "GPU-aaaa", "name": "NVIDIA H100", "util": 94, "memory_total": 80, "memory_used": 30, "power_mw": 1500}
OTHER = {"uuid": "GPU-bbbb", "name": "somebody else's", "util": 50}


def until(check: Callable[[], Any], what: str) -> Any:
    return wait_for(check, what, 40.0, 0.1)


def test_the_devices_that_the_training_names_are_read_while_it_runs(devices: Any, state_dir: Path) -> None:
    devices(OTHER, BUSY)
    words = [sys.executable, "-c", "import time; time.sleep(120)"]
    run = start_run(Spec(words, is_script=False, state_dir=state_dir, environ=dict(os.environ)))
    engine = run.socket
    hello = {"m": "hello", "schema": 1, "torch": "2.14.1", "python": "3.11.2", "trains": True, "accelerator": "cuda"}

    def machine() -> dict[str, Any]:
        return request(engine, "status")["machine"]

    pid = until(lambda: request(engine, "status")["pid"], "the training")
    assert machine()["gpus"] == [] and machine()["gpu_trouble"] is None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(engine))
        probe.sendall(json.dumps({**hello, "pid": pid, "devices": ["aaaa"]}).encode() + b"\n")
        (told,) = until(lambda: machine()["gpus"], "a device")
        assert (told["uuid"], told["kernel_active_share"], told["power_w"]) == ("GPU-aaaa", 0.94, 1.5)
        assert (told["temperature_c"], told["verified"]) == (None, False)
        devices(OTHER, {**BUSY, "util": "!15"})
        until(lambda: machine()["gpus"][0]["gone"], "the device falls off")
        assert machine()["gpus"][0]["kernel_active_share"] is None
        assert request(engine, "status")["state"] == "running"
        request(engine, "stop", grace_s=0.1, force=True)
        until(lambda: (read_state(run.data) or State()).phase == "ended", "the end")
    state = read_state(run.data)
    assert state is not None and state.gpu is not None
    assert [(one.name, one.kernel_active_share, one.gone) for one in state.gpu.devices] == [
        ("NVIDIA H100", None, False)
    ]


def test_each_device_of_several_ranks_is_asked_for_once() -> None:
    ears = Ears()
    for key, named in enumerate((["a", "b"], ["b", "c"], None)):
        message = {"m": "hello", "pid": 100 + key, "trains": True, "rank": key, "devices": named}
        ears.hear(key, lambda _: None, message, State(), 1.0)
    assert ears.devices() == ("a", "b", "c")
    ears.lost(0, 2.0)
    assert ears.devices() == ("b", "c")

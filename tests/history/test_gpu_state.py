"""The accelerators in the state: zero is zero, None is None, and no figure outlives its truth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from support.events import BEGAN_S, beginning, sample

from cockpit.history.fold import fold_all
from cockpit.history.gpu import STALE_S
from cockpit.history.journal import Journal, read_state
from cockpit.history.save import saved_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.events import TrainingEnded
from cockpit.model.gpu import GpuFigures, GpuSampled

AT_S = BEGAN_S + 5
DEVICE = GpuFigures(
    "GPU-1",
    "NVIDIA H100",
    kernel_active_share=0.0,
    memory_total_bytes=80,
    throttled=(),
    missing={"power": "not permitted to this user"},
    source="NVML",
)


def watched() -> State:
    return fold_all([*beginning(), GpuSampled(AT_S, (DEVICE,), driver="580.1")])


def test_a_training_without_a_gpu_says_so_whatever_the_machine_has() -> None:
    def told(state: State) -> object:
        return status_of(state, AT_S)["machine"]["uses_gpu"]

    before = fold_all(beginning())
    stepped = fold_all([sample(AT_S, step=3)], before)
    assert (told(before), told(stepped), told(watched())) == (None, False, True)
    woken = replace(stepped, ranks=(replace(stepped.ranks[0], accelerator="cuda"),))
    assert told(woken) is True, "a device that nobody can read is used all the same"
    assert told(fold_all([TrainingEnded(AT_S, 0)], stepped)) is None


def test_status_tells_zero_as_zero_and_what_is_not_measured_as_null() -> None:
    (told,) = json.loads(json.dumps(status_of(watched(), AT_S + 1)))["machine"]["gpus"]
    assert (told["kernel_active_share"], told["throttled"], told["power_w"]) == (0.0, [], None)
    assert (told["source"], told["verified"]) == ("NVML", False)
    assert told["missing"] == {"power": "not permitted to this user"}


def test_a_run_without_an_accelerator_tells_none() -> None:
    machine = status_of(fold_all(beginning()), AT_S)["machine"]
    assert (machine["gpus"], machine["gpu_trouble"]) == ([], None)
    trouble = fold_all([*beginning(), GpuSampled(AT_S, trouble="the NVIDIA driver is not loaded")])
    assert status_of(trouble, AT_S)["machine"]["gpu_trouble"] == "the NVIDIA driver is not loaded"


def test_old_figures_are_not_told() -> None:
    (told,) = status_of(watched(), AT_S + STALE_S + 1)["machine"]["gpus"]
    assert (told["kernel_active_share"], told["trouble"]) == (None, "not read any more")
    assert (told["name"], told["memory_total_bytes"]) == ("NVIDIA H100", 80)


def test_after_the_end_the_device_is_named_and_says_nothing() -> None:
    state = fold_all([TrainingEnded(AT_S + 9, 0)], watched())
    (told,) = status_of(state, AT_S + 9999)["machine"]["gpus"]
    assert (told["name"], told["kernel_active_share"], told["trouble"]) == ("NVIDIA H100", None, None)
    assert saved_of(state).machine.gpu == "NVIDIA H100"


def test_figures_go_through_the_journal(tmp_path: Path) -> None:
    state = fold_all(beginning())
    journal = Journal(tmp_path, state)
    event = GpuSampled(AT_S, (DEVICE, replace(DEVICE, uuid="GPU-2", gone=True, throttled=("power cap",))))
    journal.append(event, fold_all([event], state))
    journal.close()
    again = read_state(tmp_path)
    assert again is not None and again.gpu == event

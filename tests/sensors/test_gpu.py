"""The accelerators through NVML: real pynvml in a real child, on a made-up library; time is given, so nothing waits."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.bare import clean_env
from support.outcome import REPO

from cockpit.model.gpu import GpuFigures
from cockpit.sensors.gpu.figures import THROTTLING, VERIFIED, GpuReading, error_words, throttling_words
from cockpit.sensors.gpu.nvml import Retry
from cockpit.sensors.gpu.reader import ANSWER_S_AT_MOST, CHILD, OLD_S, NvmlReader, read_once
from cockpit.sensors.gpu.scripted import ScriptedGpu

BUSY: dict[str, object] = {
    "uuid": "GPU-aaaa",
    "name": "NVIDIA H100",
    "util": 94,
    "memory_total": 80 * 2**30,
    "memory_used": 30 * 2**30,
    "memory_with_reserve": 31 * 2**30,
    "power_mw": 412_500,
    "limit_mw": 700_000,
    "temperature": 61,
    "clock": 1755,
    "clock_max": 1980,
    "reasons": 0x04 | 0x20 | 0x01 | 0x02,
}
IDLE: dict[str, object] = {**BUSY, "uuid": "GPU-bbbb", "util": 0, "power_mw": 0, "temperature": 0, "reasons": 1}
FIGURES = {
    "name": ("name",),
    "utilisation": ("kernel_active_share",),
    "memory": ("memory_used_bytes", "memory_total_bytes"),
    "power": ("power_w",),
    "power_limit": ("power_limit_w",),
    "temperature": ("temperature_c",),
    "clock": ("sm_clock_mhz",),
    "clock_limit": ("sm_clock_max_mhz",),
    "throttling": ("throttled",),
}
KEY_OF = {
    "name": "name",
    "utilisation": "util",
    "memory": "memory_total",
    "power": "power_mw",
    "power_limit": "limit_mw",
    "temperature": "temperature",
    "clock": "clock",
    "clock_limit": "clock_max",
    "throttling": "reasons",
}


@pytest.fixture
def reader() -> Iterator[NvmlReader]:
    """The real one; whatever it started is ended."""
    made = NvmlReader()
    yield made
    made.close()


def read(reader: NvmlReader, now_s: float, *uuids: str) -> GpuReading:
    """What it says once the question of ``now_s`` has been answered, or the child has fallen."""
    until = time.monotonic() + 20.0
    found = reader.read(now_s, uuids or None)
    while reader.waiting and time.monotonic() < until:
        reader.wait(0.5)
        found = reader.read(now_s, uuids or None)
    return found


def one(reading: GpuReading) -> GpuFigures:
    (device,) = reading.devices
    return device


def test_figures_come_in_the_units_that_their_names_say(devices: Any, reader: NvmlReader) -> None:
    devices(BUSY)
    reading = read(reader, 1.0, "GPU-aaaa")
    assert (reading.trouble, reading.driver, reading.at_s) == (None, "580.1", 1.0)
    assert one(reading) == GpuFigures(
        uuid="GPU-aaaa",
        name="NVIDIA H100",
        kernel_active_share=0.94,
        memory_used_bytes=30 * 2**30,
        memory_total_bytes=80 * 2**30,
        power_w=412.5,
        power_limit_w=700.0,
        temperature_c=61,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        throttled=("power cap", "too hot (driver)"),
        missing={},
        source="NVML",
    )
    assert one(reading).verified is VERIFIED is False, "say so where somebody has seen it on hardware"


def test_zero_is_a_measured_zero_and_idling_is_not_throttling(devices: Any, reader: NvmlReader) -> None:
    devices(IDLE)
    device = one(read(reader, 1.0, "GPU-bbbb"))
    assert (device.kernel_active_share, device.power_w, device.temperature_c, device.throttled) == (0.0, 0.0, 0, ())


@pytest.mark.parametrize("error", [3, 4, 13])
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_that_a_device_has_not_got_is_none_with_its_reason_and_the_rest_stays(
    figure: str, error: int, devices: Any, reader: NvmlReader
) -> None:
    devices({**BUSY, KEY_OF[figure]: f"!{error}"}, IDLE)
    sick, well = read(reader, 1.0, "GPU-aaaa", "GPU-bbbb").devices
    for name, fields in FIGURES.items():
        assert all((getattr(sick, field) is None) == (name == figure) for field in fields), name
    assert sick.missing == {figure: error_words(error)} and sick.trouble is None
    assert well.missing == {} and well.kernel_active_share == 0.0
    devices(BUSY, IDLE)
    assert figure in (read(reader, 10_000.0, "GPU-aaaa", "GPU-bbbb").devices[0].missing or {}), "it is not asked again"


def test_an_unknown_error_is_asked_again_after_thirty_seconds(devices: Any, reader: NvmlReader) -> None:
    devices({**BUSY, "util": "!999"})
    assert one(read(reader, 0.0, "GPU-aaaa")).kernel_active_share is None
    devices(BUSY)
    early = one(read(reader, 29.0, "GPU-aaaa"))
    assert early.kernel_active_share is None and "no reason" in (early.missing or {})["utilisation"]
    assert early.temperature_c == 61
    later = one(read(reader, 31.0, "GPU-aaaa"))
    assert later.kernel_active_share == 0.94 and later.missing == {}


def test_any_other_error_is_asked_again_soon(devices: Any, reader: NvmlReader) -> None:
    devices({**BUSY, "util": "!10"})
    assert one(read(reader, 0.0, "GPU-aaaa")).missing == {"utilisation": error_words(10)}
    devices(BUSY)
    assert one(read(reader, 1.5, "GPU-aaaa")).kernel_active_share == 0.94


def test_pauses_grow_up_to_a_minute_and_shrink_once_it_worked() -> None:
    retry, now_s, pauses = Retry(), 0.0, []
    for _ in range(9):
        retry.failed(10, now_s)
        pauses.append(retry.not_before_s - now_s)
        now_s = retry.not_before_s
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 60.0, 60.0]
    retry.worked()
    retry.failed(10, now_s)
    assert retry.not_before_s - now_s == 1.0


@pytest.mark.parametrize("error", [15, 16])
def test_a_device_that_is_gone_is_red_at_once_and_left_alone(error: int, devices: Any, reader: NvmlReader) -> None:
    devices(BUSY, IDLE)
    assert all(device.trouble is None for device in read(reader, 0.0, "GPU-aaaa", "GPU-bbbb").devices)
    # the first figures are still told, then it vanishes: none of them may stay
    devices({**BUSY, "power_mw": f"!{error}"}, IDLE)
    gone, well = read(reader, 1.0, "GPU-aaaa", "GPU-bbbb").devices
    assert gone == GpuFigures(
        "GPU-aaaa", "NVIDIA H100", trouble=error_words(error), gone=True, missing={}, source="NVML"
    )
    assert well.kernel_active_share == 0.0
    devices({**BUSY, "util": "crash"}, IDLE)
    gone, well = read(reader, 5_000.0, "GPU-aaaa", "GPU-bbbb").devices
    assert gone.gone and not well.gone, "had it been asked again, the reader would have crashed"


@pytest.mark.parametrize("error", [9, 18])
def test_a_driver_that_does_not_fit_is_said_and_tried_again_slowly(
    error: int, devices: Any, reader: NvmlReader
) -> None:
    devices(BUSY, init=f"!{error}")
    reading = read(reader, 0.0, "GPU-aaaa")
    assert reading.devices == () and reading.trouble == error_words(error)
    assert "the training goes on" in reading.trouble
    devices(BUSY)
    assert read(reader, 29.0, "GPU-aaaa").trouble == error_words(error)
    assert one(read(reader, 31.0, "GPU-aaaa")).kernel_active_share == 0.94


def test_without_the_library_there_is_a_hint_and_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: NvmlReader
) -> None:
    # a file of that name that is no library: also where the real one is installed
    (tmp_path / "libnvidia-ml.so.1").write_text("nothing")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    reading = read(reader, 0.0, "GPU-aaaa")
    assert reading.devices == () and reading.trouble == error_words(12) and "container" in reading.trouble


def test_an_old_driver_lacks_two_functions_and_still_tells(
    devices: Any, old_stub_library: Path, monkeypatch: pytest.MonkeyPatch, reader: NvmlReader
) -> None:
    devices(BUSY)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(old_stub_library))
    device = one(read(reader, 0.0, "GPU-aaaa"))
    assert device.memory_used_bytes == 31 * 2**30 and device.throttled == ("power cap", "too hot (driver)")


def test_values_that_mean_not_available_are_none(devices: Any, reader: NvmlReader) -> None:
    devices({**BUSY, "power_mw": 2**32 - 1, "memory_used": 2**64 - 1, "reasons": 2**64 - 1})
    device = one(read(reader, 0.0, "GPU-aaaa"))
    assert (device.power_w, device.memory_used_bytes, device.throttled) == (None, None, None)
    assert device.memory_total_bytes == 80 * 2**30


MIG: dict[str, object] = {"uuid": "MIG-cccc", "name": "NVIDIA H100 MIG 1g.10gb", "memory_total": 10, "memory_used": 4}


def test_devices_are_found_by_the_name_that_torch_gives_a_slice_too(devices: Any, reader: NvmlReader) -> None:
    # torch names devices without a prefix, and does not say which are slices
    devices(IDLE, BUSY, MIG)
    whole, part = read(reader, 0.0, "aaaa", "cccc").devices
    assert (whole.uuid, whole.mig, whole.kernel_active_share) == ("GPU-aaaa", False, 0.94)
    assert (part.uuid, part.mig, part.name) == ("MIG-cccc", True, "NVIDIA H100 MIG 1g.10gb")
    assert part.kernel_active_share is None and (part.missing or {})["utilisation"] == "N/A (MIG)"
    assert (part.memory_used_bytes, part.memory_total_bytes) == (4, 10)
    assert [d.uuid for d in read(reader, 2.0, "GPU-cccc", "MIG-cccc").devices] == ["MIG-cccc", "MIG-cccc"]


def test_a_device_that_the_driver_does_not_know_is_said(devices: Any, reader: NvmlReader) -> None:
    devices(BUSY)
    unknown, known = read(reader, 0.0, "GPU-zzzz", "aaaa").devices
    assert unknown.trouble == error_words(6) and unknown.kernel_active_share is None
    assert known.kernel_active_share == 0.94


def test_a_crash_leaves_the_healthy_device_and_the_other_comes_back(devices: Any, reader: NvmlReader) -> None:
    devices({**BUSY, "util": "crash"}, IDLE)
    fallen = read(reader, 0.0, "GPU-aaaa", "GPU-bbbb")
    assert fallen.devices == () and fallen.trouble == "the reader of the GPU has crashed; it is started again in 1 s"
    after = read(reader, 1.5, "GPU-aaaa", "GPU-bbbb")
    states = {device.uuid: (device.kernel_active_share, device.trouble) for device in after.devices}
    assert after.trouble is None
    assert states == {"GPU-bbbb": (0.0, None), "GPU-aaaa": (None, "the reader crashed while it asked this device")}
    devices(BUSY, IDLE)
    again = read(reader, 20.0, "GPU-aaaa", "GPU-bbbb")
    assert [device.kernel_active_share for device in again.devices] == [0.94, 0.0]


def test_a_reader_that_keeps_crashing_is_started_ever_more_rarely(tmp_path: Path) -> None:
    started = tmp_path / "started"
    started.touch()
    reader = NvmlReader(["sh", "-c", f"echo >> {started}; exit 1"])
    starts: list[float] = []
    for half_seconds in range(70):
        reading = read(reader, half_seconds / 2, "GPU-aaaa")
        assert reading.devices == () and "started again" in str(reading.trouble)
        if started.stat().st_size > len(starts):
            starts.append(half_seconds / 2)
    assert [later - earlier for earlier, later in pairwise(starts)] == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_reader_that_hangs_is_killed_and_the_others_are_asked_without_that_device(
    devices: Any, reader: NvmlReader
) -> None:
    devices(BUSY, {**IDLE, "power_mw": "hang"})
    reader.read(0.0, ["GPU-aaaa", "GPU-bbbb"])
    child = reader._child
    assert child is not None
    until = time.monotonic() + 20.0
    while reader._at != "GPU-bbbb" and time.monotonic() < until:
        reader.wait(0.5)
        reader.read(0.5, ["GPU-aaaa", "GPU-bbbb"])
    late = ANSWER_S_AT_MOST + 1
    began = time.monotonic()
    assert "hung" in str(reader.read(late, ["GPU-aaaa", "GPU-bbbb"]).trouble)
    assert time.monotonic() - began < 5.0, "nobody waits for it"
    assert child.wait(10) == -9
    healthy = read(reader, late + 1.5, "GPU-aaaa", "GPU-bbbb").devices
    assert [(device.uuid, device.kernel_active_share) for device in healthy] == [("GPU-aaaa", 0.94), ("GPU-bbbb", None)]


def test_old_figures_are_not_shown_as_new_ones(devices: Any, reader: NvmlReader) -> None:
    devices(BUSY)
    assert one(read(reader, 0.0, "GPU-aaaa")).kernel_active_share == 0.94
    devices({**BUSY, "util": "hang"})
    reader.read(2.0, ["GPU-aaaa"])
    reading = reader.read(9.0, ["GPU-aaaa"])
    assert one(reading).kernel_active_share == 0.94 and reading.at_s == 0.0, "its age is told"
    reading = reader.read(OLD_S + 1.0, ["GPU-aaaa"])
    assert one(reading).kernel_active_share is None and "nothing heard for 16 s" in str(one(reading).trouble)


def test_a_child_killed_by_somebody_else_is_replaced(devices: Any, reader: NvmlReader) -> None:
    devices(BUSY)
    read(reader, 0.0, "GPU-aaaa")
    child = reader._child
    assert child is not None
    child.kill()
    child.wait(10)
    assert "crashed" in str(reader.read(5.0, ["GPU-aaaa"]).trouble)
    assert one(read(reader, 7.0, "GPU-aaaa")).kernel_active_share == 0.94


@pytest.mark.parametrize("shell", ["echo nonsense", "echo '[]'", "echo '{}'", "echo 3", "echo '\"at\"'", "exit 1"])
def test_whatever_the_child_says_the_reader_lives(shell: str) -> None:
    reader = NvmlReader(["sh", "-c", f"read line; {shell}; read line"])
    try:
        assert "started again" in str(read(reader, 0.0, "GPU-aaaa").trouble)
    finally:
        reader.close()


def test_a_child_that_cannot_be_started_is_a_sentence(tmp_path: Path) -> None:
    found = NvmlReader([str(tmp_path / "none")]).read(0.0, ["GPU-aaaa"])
    assert "cannot be started (No such file" in str(found.trouble)


def test_no_device_no_child_and_closing_ends_it(devices: Any, reader: NvmlReader) -> None:
    devices(BUSY)
    assert reader.read(0.0, []) == GpuReading() and reader._child is None
    read(reader, 1.0, "GPU-aaaa")
    child = reader._child
    assert child is not None and child.poll() is None
    assert reader.read(3.0, []) == GpuReading()
    assert child.wait(10) == -9


def test_the_child_ends_with_its_parent(devices: Any) -> None:
    devices(BUSY)
    with subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b'{"at_s": 0, "uuids": ["GPU-aaaa"]}\n')
        child.stdin.flush()
        assert child.stdout.readline() == b'{"at": "GPU-aaaa"}\n', "the library's own talk is not on stdout"
        child.stdin.close()
        assert child.wait(20) == 0


def test_doctor_reads_every_device_once(devices: Any) -> None:
    devices(BUSY, IDLE)
    assert [device.uuid for device in read_once(20.0).devices] == ["GPU-aaaa", "GPU-bbbb"]
    devices(BUSY, init="crash")
    assert "has crashed" in str(read_once(20.0).trouble)


def test_the_stub_lacks_the_name_that_would_make_torch_believe_in_a_gpu(stub_library: Path) -> None:
    found = subprocess.run(["nm", "-D", str(stub_library / "libnvidia-ml.so.1")], capture_output=True, text=True)
    names = {line.split()[-1] for line in found.stdout.splitlines() if " T " in line}
    assert "nvmlInitWithFlags" in names and not names & {"nvmlInit", "nvmlInit_v2"}


def test_only_the_child_imports_the_vendors_package() -> None:
    code = "import sys, cockpit.sensors.gpu.reader, cockpit.engine.main; print('pynvml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_env({"PYTHONPATH": str(REPO)}), capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr


def test_words() -> None:
    assert throttling_words(None) is None and throttling_words(0) == ()
    assert throttling_words(sum(THROTTLING)) == tuple(THROTTLING.values())
    assert error_words(4242) == "error 4242 of the driver's library"


def test_the_scripted_reader_plays_its_list() -> None:
    script = ScriptedGpu([GpuReading(devices=(GpuFigures("GPU-1", power_w=w),)) for w in (1.0, 2.0)])
    assert script.read(0.0, []) == GpuReading()
    seen = [script.read(now_s, ["GPU-1"]) for now_s in (1.0, 2.0, 3.0)]
    assert [(reading.at_s, reading.devices[0].power_w) for reading in seen] == [(1.0, 1.0), (2.0, 2.0), (3.0, 2.0)]
    script.close()
    assert script.closed and script.asked == [(), *[("GPU-1",)] * 3]

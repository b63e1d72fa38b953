"""The accelerators as rows: what each figure is, where it comes from, and nothing that was not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tui import scenes

from cockpit.history.state import State
from cockpit.model.events import ProbeConnected
from cockpit.model.gpu import GpuFigures, GpuSampled
from cockpit.tui.card import card_rows
from cockpit.tui.frame import frame
from cockpit.tui.glyphs import ASCII, BRAILLE, Glyphs
from cockpit.tui.gpu import gpu_rows
from cockpit.tui.machine import no_gpu_words
from cockpit.tui.rows import text_of, width_of
from cockpit.tui.view import View

DEVICE = GpuFigures(
    "GPU-0a1b2c3d-aabbcc",
    "NVIDIA H100 80GB HBM3",
    kernel_active_share=0.94,
    memory_used_bytes=30 * 2**30,
    memory_total_bytes=80 * 2**30,
    power_w=412.4,
    power_limit_w=700.0,
    temperature_c=61,
    sm_clock_mhz=1755,
    sm_clock_max_mhz=1980,
    throttled=(),
    missing={},
    source="NVML",
)


def seen(*devices: GpuFigures, trouble: str | None = None) -> View:
    return View(State(gpu=GpuSampled(0.0, devices, trouble)), 0.0)


def text(view: View, width: int = 120, rows: int = 8) -> str:
    return text_of(gpu_rows(view, width, 11, rows))


def test_a_row_names_its_figures_their_source_and_that_it_is_unverified() -> None:
    assert text(seen(DEVICE)) == (
        "gpu        94% kernel active · 30.0 of 80.0 GiB · 412 of 700 W · 61 °C · 1755 of 1980 MHz"
        + " " * 14
        + "NVML (unverified)"
    )
    assert text(seen(replace(DEVICE, verified=True))).endswith(" NVML")


def test_where_there_is_less_room_whole_figures_go_and_half_ones_never_stay() -> None:
    assert text(seen(DEVICE), 80) == "gpu        94% kernel active · 30.0 of 80.0 GiB · 412 of 700 W NVML (unverified)"
    hot = replace(DEVICE, throttled=("too hot (driver)",))
    assert "94% kernel active · throttled: too hot (driver)" in text(seen(hot), 80)


def test_zero_is_a_zero_and_what_is_not_measured_is_no_figure() -> None:
    assert "0% kernel active" in text(seen(replace(DEVICE, kernel_active_share=0.0)))
    blind = GpuFigures("MIG-1", missing={"utilisation": "N/A (MIG)"}, source="NVML")
    assert text(seen(blind)).split("  ")[0] == "gpu" and "N/A (MIG) kernel active" in text(seen(blind))
    assert not set("0123456789") & set(text(seen(blind)))
    assert "– kernel active" in text(seen(GpuFigures("GPU-1")))
    assert "80.0 GiB" in text(seen(replace(DEVICE, memory_used_bytes=None)))


@pytest.mark.parametrize("gone", [True, False])
def test_a_device_in_trouble_says_which_and_why(gone: bool) -> None:
    (row,) = gpu_rows(seen(replace(DEVICE, trouble="the device has fallen off the bus", gone=gone)), 120, 11, 8)
    assert text_of([row]) == "gpu        NVIDIA H100 80GB HBM3 aabbcc: the device has fallen off the bus"
    assert ("bold alarm" in dict(map(reversed, row))) == gone  # type: ignore[arg-type]


def test_why_there_is_no_device_is_said_once() -> None:
    assert text(seen(trouble="the NVIDIA driver is not loaded")) == "gpu        the NVIDIA driver is not loaded"
    assert text(seen()) == "" and text(View(State(), 0.0)) == "" and card_rows(View(State(), 0.0), 80, 9) == []


def test_more_devices_than_rows_end_in_a_count_that_tells_the_laziest() -> None:
    devices = [replace(DEVICE, uuid=f"GPU-{at}", kernel_active_share=at / 10) for at in range(8)]
    devices[5] = replace(devices[5], trouble="the device needs a reset")
    lines = text(seen(*devices), rows=4).splitlines()
    assert len(lines) == 4
    words = "and 5 more, lowest measured 30% kernel active, 1 in trouble"
    assert lines[-1].strip().startswith(words) and lines[-1].endswith("NVML (unverified)")
    (only,) = text(seen(*devices), rows=1).splitlines()
    assert only.startswith("gpu        8 devices, lowest measured 0% kernel active, 1 in trouble")
    blind = [replace(device, kernel_active_share=None) for device in devices]
    assert "8 devices, kernel active not measured, 1 in trouble" in text(seen(*blind), rows=1)
    assert len(text(seen(*devices), rows=8).splitlines()) == 8


def test_the_card_holds_every_device() -> None:
    lines = text_of(card_rows(seen(DEVICE, replace(DEVICE, trouble="gone", gone=True)), 90, 6)).splitlines()
    name = "GPU NVIDIA H100 80GB HBM3 aabbcc"
    assert lines[0].startswith(f"{name} · 61 °C · not throttled  ") and lines[0].endswith("NVML (unverified)")
    assert [line.split() for line in lines[1:3]] == [
        ["kernel", "active", "━" * 15, "94%", "memory", "━" * 18, "30.0", "of", "80.0", "GiB"],
        ["power", "━" * 15, "412", "of", "700", "W", "clock", "━" * 18, "1755", "of", "1980", "MHz"],
    ]
    assert lines[3].startswith(name) and lines[4] == "    gone" and len(lines) == 5


def test_a_card_has_no_bar_where_nothing_was_told_and_says_why() -> None:
    mig = GpuFigures("MIG-1", "H100 MIG 1g.10gb", True, None, 2**30, 10 * 2**30, missing={"utilisation": "N/A (MIG)"})
    first, second = text_of(card_rows(seen(mig), 90, 3)[1:]).splitlines()
    assert first.startswith("kernel active") and "N/A (MIG)" in first
    assert "━" not in first.split("memory")[0] and "1.0 of 10.0 GiB" in first
    assert second.split() == ["power", "–", "clock", "–"]
    idle = replace(DEVICE, kernel_active_share=0.0)
    row = card_rows(seen(idle), 90, 3)[1]
    assert ("━" * 16, "line") in row or any(style == "line" and "━" in text for text, style in row)
    assert "0%" in text_of([row])


def test_where_not_all_cards_fit_there_is_a_line_a_device() -> None:
    devices = [replace(DEVICE, uuid=f"GPU-{at}") for at in range(4)]
    lines = text_of(card_rows(seen(*devices), 90, 4)).splitlines()
    assert lines[0] == "GPU" and len(lines) == 4 and lines[3].startswith("and 2 more")
    assert len(card_rows(seen(*devices), 90, 12)) == 12


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_the_frame_shows_it_at_every_size_and_moves_nothing_above_it(width: int, height: int) -> None:
    state, now_s = scenes.steady()
    with_gpu = replace(state, gpu=GpuSampled(now_s, (DEVICE,)))
    bare, shown = (text_of(frame(View(each, now_s), width, height)).splitlines() for each in (state, with_gpu))
    assert len(bare) == len(shown)
    assert any("no GPU in use" in line or "uses no GPU" in line for line in bare)
    assert any("94% kernel active" in line or ("kernel active" in line and " 94% " in line) for line in shown)
    assert shown[:3] == bare[:3] and shown[-1] == bare[-1]
    assert not any("no GPU" in line for line in shown)


def test_no_gpu_is_said_only_where_none_is_used() -> None:
    state, _ = scenes.steady()
    assert no_gpu_words(state)[0] == "this training uses no GPU"
    assert no_gpu_words(replace(state, step=None)) == (), "before the first step nobody knows"
    assert no_gpu_words(replace(state, gpu=GpuSampled(0.0))) == ()
    woken = replace(state.ranks[0], accelerator="cuda") if state.ranks else ProbeConnected(0.0, 1, "2", "3", "cuda")
    assert no_gpu_words(replace(state, ranks=(woken,))) == ()


readings = st.builds(
    GpuSampled, st.just(0.0), st.lists(st.from_type(GpuFigures), max_size=4).map(tuple), st.none() | st.text()
)


@settings(deadline=None, max_examples=60)
@given(readings, st.integers(1, 220), st.integers(0, 5), st.sampled_from([BRAILLE, ASCII]))
def test_whatever_was_read_fits_its_room(gpu: GpuSampled, width: int, rows: int, glyphs: Glyphs) -> None:
    view = View(State(gpu=gpu), 0.0, glyphs=glyphs)
    found = gpu_rows(view, width, 11, rows)
    assert len(found) <= rows and all(width_of(each) == width for each in found)
    assert all(width_of(each) <= width for each in card_rows(view, width, rows))
    frame(view, width, 30)

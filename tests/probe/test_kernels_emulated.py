"""Lower precision that is only emulated is said on autocast's row, before anybody tries it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from kernels_harness import control, net, row

from cockpit.probe.kernels import emulated
from cockpit.probe.kernels.control import IN_TRAINING

X86 = "processor : 0\nmodel name : a CPU\nflags\t\t: fpu avx2 avx512f%s\nbugs : none\n"


@pytest.fixture(autouse=True)
def _fresh():
    emulated.cpu_flags.cache_clear()
    yield
    emulated.cpu_flags.cache_clear()


@pytest.mark.parametrize(
    ("text", "bf16", "fp16"),
    [
        (X86 % "", True, True),
        (X86 % " avx512_bf16", False, True),
        (X86 % " amx_bf16 amx_fp16", False, False),
        ("Features : fp asimd asimdhp bf16\n", False, False),
        ("nothing that we know\n", False, False),
    ],
)
def test_what_the_cpu_says_it_can(text: str, bf16: bool, fp16: bool, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    found = emulated.cpu_flags(str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(emulated, "cpu_flags", lambda: found)
    words = "this CPU has no %s instructions: torch emulates them, likely slower"
    assert emulated.words_of(None, "cpu", "script") == (words % "bf16" if bf16 else None)
    assert emulated.words_of(None, "cpu", "fp16") == (words % "fp16" if fp16 else None)


def test_a_gpu_that_would_emulate_it() -> None:
    old = SimpleNamespace(cuda=SimpleNamespace(is_bf16_supported=lambda including_emulation: including_emulation))
    assert "this GPU has no bf16" in str(emulated.words_of(old, "cuda"))
    assert emulated.words_of(old, "cuda", "fp16") is None and emulated.words_of(old, "mps") is None


def test_no_cpuinfo(tmp_path: Path) -> None:
    assert emulated.cpu_flags(str(tmp_path / "none")) == frozenset()


def test_the_row_says_so_while_autocast_is_off(monkeypatch) -> None:
    model = net()
    kernels = control(model)
    monkeypatch.setattr(emulated, "cpu_flags", lambda: frozenset({"avx2"}))
    found = row(kernels, "autocast")
    assert found.can and found.note is not None and "no bf16 instructions" in found.note
    monkeypatch.setattr(emulated, "cpu_flags", lambda: frozenset({"amx_bf16"}))
    assert row(kernels, "autocast").note == IN_TRAINING

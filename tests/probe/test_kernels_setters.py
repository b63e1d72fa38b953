"""matmul and threads: torch's getters say what is in force."""

from __future__ import annotations

import pytest
import torch
from kernels_harness import control, net, row

from cockpit.probe.groups import Refused
from cockpit.probe.kernels.setters import changes_products


@pytest.fixture(autouse=True)
def as_before():
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


def test_threads_ten_times_there_and_back():
    own, kernels = torch.get_num_threads(), control(net())
    for _ in range(10):
        kernels.land({"threads": own + 1})
        assert torch.get_num_threads() == own + 1
        assert row(kernels, "threads")[:3] == ("threads", own, own + 1)
        kernels.land({"threads": "script"})
        assert torch.get_num_threads() == own
        assert row(kernels, "threads")[:3] == ("threads", own, own)


def test_matmul_ten_times_there_and_back():
    own, kernels = torch.get_float32_matmul_precision(), control(net())
    for _ in range(10):
        kernels.land({"matmul": "medium"})
        assert torch.get_float32_matmul_precision() == "medium"
        assert row(kernels, "matmul")[:3] == ("matmul", own, "medium")
        kernels.land({"matmul": "script"})
        assert torch.get_float32_matmul_precision() == own


def test_script_before_anything_was_set_sets_nothing(monkeypatch):
    kernels = control(net())
    monkeypatch.setattr(torch, "set_num_threads", None)
    kernels.land({"threads": "script", "matmul": "script"})
    assert kernels.setters["threads"].script is None


def test_the_script_sets_it_again_and_the_row_says_so():
    kernels = control(net())
    kernels.land({"threads": 3})
    assert row(kernels, "threads").note != "the script has set it again"
    torch.set_num_threads(2)
    found = row(kernels, "threads")
    assert (found.in_force, found.note) == (2, "the script has set it again")


def test_more_threads_than_cpus_is_said():
    kernels = control(net())
    kernels.land({"threads": 900})
    assert "more than the" in row(kernels, "threads").note
    kernels.land({"threads": 1})
    assert (
        "more than" not in row(kernels, "threads").note and "sums come in another order" in row(kernels, "threads").note
    )


def test_matmul_tells_whether_this_cpu_cares():
    state = torch.get_rng_state()
    cares = changes_products(torch)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_float32_matmul_precision() == "highest"
    model = net()
    kernels = control(model)
    # nothing is tried before anybody asks (another test may have compiled something, which is noted too)
    assert "no effect" not in (row(kernels, "matmul").note or "")
    kernels.land({"matmul": "high"})
    note = row(kernels, "matmul").note
    assert (note is not None and note.startswith("no effect")) is not cares


def test_mixed_settings_are_refused_and_unknown(monkeypatch):
    def mixed() -> str:
        raise RuntimeError("PyTorch is checking whether allow_tf32_new is enabled …")

    kernels = control(net())
    monkeypatch.setattr(kernels.setters["matmul"], "_read", mixed)
    assert row(kernels, "matmul").in_force is None
    with pytest.raises(Refused, match="mixing"):
        kernels.land({"matmul": "high"})


def test_several_ranks_are_refused():
    kernels, own = control(net(), world=2), torch.get_num_threads()
    with pytest.raises(Refused, match="several ranks"):
        kernels.land({"threads": own + 1})
    assert torch.get_num_threads() == own
    assert all(not found.can and "several ranks" in found.reason for found in kernels.reports())

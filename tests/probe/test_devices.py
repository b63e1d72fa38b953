"""Which devices a training uses: asked of a CUDA that is already awake, and never of one that sleeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeEngine, finish, launch, probe_env, script

from cockpit.probe.devices import AGAIN_NS, Devices, used_devices


class Cuda:
    """As ``torch.cuda``: ``reserved`` bytes a device; asking a sleeping one anything else is an error."""

    def __init__(self, reserved: list[int], awake: bool = True) -> None:
        self._reserved, self._awake = reserved, awake

    def is_initialized(self) -> bool:
        return self._awake

    def __getattr__(self, name: str) -> Any:
        assert self._awake, f"{name} would initialise CUDA in the training"
        answers = {
            "device_count": lambda: len(self._reserved),
            "memory_reserved": lambda at: self._reserved[at],
            "get_device_properties": lambda at: SimpleNamespace(uuid=f"uuid-{at}"),
        }
        return answers[name]


def torch_with(cuda: Any, hip: str | None = None) -> Any:
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip))


def test_the_devices_that_hold_memory_are_named() -> None:
    assert used_devices(torch_with(Cuda([0, 512, 0, 2**20]))) == ("uuid-1", "uuid-3")


def test_devices_that_are_used_later_are_found_and_none_is_forgotten() -> None:
    reserved = [0, 0]
    devices = Devices(torch_with(Cuda(reserved)))
    assert not devices.look(1) and not devices.look(2) and devices.names == ()
    reserved[1] = 512
    assert devices.look(3) and devices.names == ("uuid-1",)
    reserved[:] = [512, 0]
    assert not devices.look(AGAIN_NS), "not asked so soon again"
    assert devices.look(3 + AGAIN_NS) and devices.names == ("uuid-1", "uuid-0")


@pytest.mark.parametrize(
    "torch",
    [torch_with(Cuda([512], awake=False)), torch_with(None), torch_with(Cuda([512]), hip="6.2"), torch_with(Cuda([]))],
    ids=["asleep", "no cuda", "another vendor", "no device"],
)
def test_where_there_is_nothing_to_be_told_nothing_is_asked(torch: Any) -> None:
    assert used_devices(torch) == ()


def test_a_torch_that_does_not_name_its_devices() -> None:
    cuda = Cuda([512])
    cuda.get_device_properties = lambda at: SimpleNamespace()  # type: ignore[attr-defined]
    assert used_devices(torch_with(cuda)) == ()


def test_the_real_torch_without_a_gpu_stays_asleep() -> None:
    import torch

    awake = torch.cuda.is_initialized()
    assert used_devices(torch) == () or awake
    assert torch.cuda.is_initialized() == awake


TRAINING = """
    import types, torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.cuda.is_initialized = lambda: True
    torch.cuda.device_count = lambda: 2
    torch.cuda.memory_reserved = lambda at: 512 * at
    torch.cuda.get_device_properties = lambda at: types.SimpleNamespace(uuid="uuid-%d" % at)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(200):
        for (x,) in DataLoader(TensorDataset(torch.ones(8, 2)), 2):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def test_the_engine_is_told_once_a_step_has_ended(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "s")
    out, err = finish(launch(script(tmp_path, TRAINING), probe_env(tmp_path)))
    assert (out, err) == ("", "")
    told = [message["devices"] for message in engine.of("hello")]
    assert told[0] == [] and told[-1] == ["uuid-1"] and len(told) <= 3
    engine.close()

"""Workers that start anew are given what the training's process has set for all of itself; others are left alone."""

from __future__ import annotations

import csv
import decimal
import multiprocessing
import pickle
import socket
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from cockpit.probe import anew
from cockpit.probe.anew import SETTINGS, Begin, differing, forks, given
from tests.probe.swap_harness import Harness

OTHERS = {
    "torch": ["float64", "meta", (True, True), "medium", False],
    "torch.multiprocessing": ["file_system"],
    "PIL.ImageFile": [True],
    "PIL.Image": [5],
    "torchvision": ["accimage"],
    "numpy": [{"divide": "raise", "over": "raise", "under": "raise", "invalid": "raise"}],
    "socket": [3.0],
    "decimal": [(5, decimal.ROUND_UP)],
    "csv": [7],
    "sys": [1234],
}
"""For each of the table, in its order: another value than a process begins with."""
USED = (csv, numpy, socket, torch.multiprocessing)
"All that the table speaks of is imported here."


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages that may not be here, as far as they are asked; everything is put back."""
    for name, values in {
        "PIL": {},
        "PIL.ImageFile": {"LOAD_TRUNCATED_IMAGES": False},
        "PIL.Image": {"MAX_IMAGE_PIXELS": 1024**3 // 12},
        "torchvision": {"_image_backend": "PIL"},
    }.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    before = [setting.read(sys.modules[setting.module]) for setting in SETTINGS]
    yield
    for setting, value in zip(SETTINGS, before, strict=True):
        setting.write(sys.modules[setting.module], value)


def places() -> list[tuple[int, Any]]:
    left = {module: list(values) for module, values in OTHERS.items()}
    return [(at, left[setting.module].pop(0)) for at, setting in enumerate(SETTINGS)]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(("at", "value"), places())
def test_what_was_set_is_carried(at: int, value: Any) -> None:
    setting = SETTINGS[at]
    setting.write(sys.modules[setting.module], setting.at_first)
    assert at not in dict(differing())
    setting.write(sys.modules[setting.module], value)
    assert dict(differing())[at] == value
    stream = pickle.dumps(Begin([(at, value)], len))
    setting.write(sys.modules[setting.module], setting.at_first)
    assert pickle.loads(stream) is len  # unpickling it sets it
    assert setting.read(sys.modules[setting.module]) == value


def test_what_is_not_imported_or_has_no_such_thing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    monkeypatch.setitem(sys.modules, "PIL.ImageFile", ModuleType("PIL.ImageFile"))
    assert not [at for at, _ in differing() if SETTINGS[at].module.startswith("PIL")]
    assert "PIL.Image" not in sys.modules


def test_it_is_set_before_the_dataset_is_made_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anew, "differing", lambda: [(0, "float64")])
    spawned = multiprocessing.get_context("spawn")
    context = given(torch, SimpleNamespace(multiprocessing_context=spawned))
    assert context.Event.__self__ is spawned
    order = list(vars(context.Process(target=len, args=([],))))
    assert order[0] == "_first" and order.index("_target") < order.index("_args")
    forked = multiprocessing.get_context("fork")
    assert forks(SimpleNamespace(multiprocessing_context=forked))
    assert given(torch, SimpleNamespace(multiprocessing_context=forked)) is forked  # given everything as it is


class Rows(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.full((1,), index / 3)


@pytest.mark.long
def test_samples_from_workers_that_are_not_forked_are_those_of_the_training() -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    torch.set_default_dtype(torch.float64)
    try:
        loader = DataLoader(Rows(), batch_size=2)
        with Harness(now={(0, 1): {"num_workers": 1}}) as harness:
            served = torch.cat(list(loader))
        assert served.dtype is torch.float64 and served.flatten().tolist() == [at / 3 for at in range(12)]
        assert len(harness.swaps) == 1 and not harness.notices
    finally:
        torch.set_default_dtype(torch.float32)
        multiprocessing.set_start_method(before, force=True)

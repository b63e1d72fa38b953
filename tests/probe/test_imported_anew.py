"""Workers that are not forked import the script anew; samplers of the script's own are asked earlier."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

from cockpit.probe.groups import Refused
from cockpit.probe.imported_anew import set_later
from tests.probe.swap_harness import Harness

SCRIPT = """
import random
from torch.utils.data import Dataset, get_worker_info
SCALE, SHIFT, STEPS, FIXED = 1.0, 0, 0, 2
class Rows(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return %s
def main(scale):
    global SCALE, COUNTED
    SCALE = scale
def step():
    STEPS = 1
if __name__ == "__main__":
    SHIFT = 3
    for STEP in ():
        pass
"""


def dataset_of(tmp_path: Path, what: str) -> Any:
    path = tmp_path / "anew_script.py"
    path.write_text(SCRIPT % what)
    module = ModuleType("anew_script")
    module.__file__ = str(path)
    sys.modules["anew_script"] = module
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    set_later.cache_clear()
    return module.Rows()


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("index * SCALE", "SCALE"),
        ("index + SHIFT", "SHIFT"),
        ("index * FIXED + STEPS", None),
        ("index if get_worker_info() is None else index + 0 * random.random()", None),  # packages' own
    ],
)
def test_what_the_script_has_set_since_is_missed(tmp_path: Path, what: str, name: str | None) -> None:
    loader = DataLoader(dataset_of(tmp_path, what), batch_size=2, multiprocessing_context=None)
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        with Harness() as harness:
            control = harness.control(loader)
            if name is None:
                assert control.plan({"num_workers": 1}).num_workers == 1
            else:
                with pytest.raises(Refused, match="import the script anew, and what it has made of %s since" % name):
                    control.plan({"num_workers": 1})
    finally:
        multiprocessing.set_start_method(before, force=True)
    with Harness() as harness:  # a forked one is given everything as it is
        assert harness.control(loader).plan({"num_workers": 1}).num_workers == 1


class Rows(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


class Feedback(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"sampler": Feedback()}, True),
        ({"batch_sampler": BatchSampler(Feedback(), 2, False)}, True),
        ({"shuffle": True}, False),
        ({"batch_size": None}, False),
    ],
)
def test_a_sampler_of_the_scripts_own_may_look_at_the_training(how: dict[str, Any], told: bool) -> None:
    with Harness() as harness:
        note = harness.control(DataLoader(Rows(), **how)).refusals()["num_workers"].note
    assert note == (
        "workers ask Feedback some batches ahead: one that chooses by the losses so far would choose by older ones, "
        "and a position that is saved in mid-epoch is ahead of what was trained on"
        if told
        else None
    )

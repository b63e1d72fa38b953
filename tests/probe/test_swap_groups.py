"""Which groups can be had: coupling, refusals with their reasons, streams, pinning, and a torch that we do not know."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probe import swap_scenes as scenes
from probe.swap_harness import Harness
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data import dataloader as torch_loader

from cockpit.model.knobs import LOADER_KNOBS
from cockpit.probe import mechanism as mechanisms
from cockpit.probe.groups import Group, Refused, couple, script_group
from cockpit.probe.swap import LoaderControl, install

NONE = Group(0, None, False, False, True)
TWO = Group(2, 2, False, False, True)


def control(loader: Any) -> LoaderControl:
    return LoaderControl(install(torch), loader)


# ---- coupling --------------------------------------------------------------------------------------------------


def test_dependent_knobs_move_together() -> None:
    assert couple(NONE, {"num_workers": 2}, NONE) == TWO
    assert couple(NONE, {"num_workers": 2, "prefetch_factor": 5}, NONE).prefetch_factor == 5
    kept = Group(4, 6, False, True, True)
    assert couple(kept, {"num_workers": 0}, kept) == NONE
    assert couple(kept, {"num_workers": 3}, NONE, kept) == kept._replace(num_workers=3)
    assert couple(NONE, {"num_workers": "script"}, TWO) == NONE
    assert couple(NONE, {"prefetch_factor": "script"}, TWO._replace(prefetch_factor=7)) == TWO
    assert couple(TWO, {}, NONE) == NONE


@pytest.mark.parametrize(
    "asked", [{"prefetch_factor": 2}, {"persistent_workers": True}, {"num_workers": 0, "in_order": False}]
)
def test_what_needs_workers_is_refused_without_them(asked: Any) -> None:
    with pytest.raises(Refused, match="needs workers") as refused:
        couple(TWO, asked, NONE)
    assert refused.value.reason == str(refused.value)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "num_workers": st.integers(0, 8) | st.just("script"),
            "prefetch_factor": st.integers(1, 9) | st.just("script"),
            "persistent_workers": st.booleans() | st.just("script"),
            "in_order": st.booleans() | st.just("script"),
        },
    ),
    st.sampled_from([NONE, TWO, Group(4, 6, False, True, False)]),
    st.sampled_from([NONE, TWO, Group(3, 1, True, True, True)]),
)
def test_every_group_is_one_that_torch_takes(asked: Any, script: Group, base: Group) -> None:
    try:
        group = couple(script, asked, base, script if script.num_workers else None)
    except Refused:
        return
    loader = DataLoader(scenes.Squares(), **group._asdict())
    assert script_group(loader) == group
    for name, value in asked.items():
        if value != "script" and group.num_workers:
            assert getattr(group, name) == value


# ---- refusals --------------------------------------------------------------------------------------------------


def test_knobs_that_need_workers_are_greyed_out_but_can_be_had_with_them() -> None:
    ours = control(DataLoader(scenes.Squares()))
    found = ours.refusals()
    assert set(found) == set(LOADER_KNOBS)
    assert not found["prefetch_factor"].can and "needs num_workers" in str(found["prefetch_factor"].reason)
    assert found["num_workers"].can and found["num_workers"].can_now
    assert ours.plan({"num_workers": 2, "prefetch_factor": 4}).capacity == 8


def test_pinning_is_refused_without_an_accelerator() -> None:
    ours = control(DataLoader(scenes.Squares()))
    assert ours.refusals()["pin_memory"].reason == "no accelerator found"
    with pytest.raises(Refused, match="no accelerator found"):
        ours.plan({"pin_memory": True})
    assert ours.plan({"pin_memory": False}) == ours.script


def test_a_script_that_pins_in_vain_gets_no_second_warning(recwarn: pytest.WarningsRecorder) -> None:
    with Harness({0: {"num_workers": 1}}, {(0, 2): {"num_workers": 2}}) as harness:
        loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH, pin_memory=True)
        iterator = iter(loader)
        next(iterator)
        assert not harness.control(loader).in_force_now(iterator).pin_memory
        list(iterator)
    assert not recwarn.list


class FakeAccelerator:
    """What torch asks about a device; pinning itself is replaced by a mark."""

    type = "fake"

    def is_available(self) -> bool:
        return True

    def current_accelerator(self) -> Any:
        return self

    def current_device_index(self) -> int:
        return 0

    def set_device_index(self, index: int) -> None:
        pass


def test_pinning_reaches_torchs_own_machinery(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []

    def pin(data: torch.Tensor, device: Any = None) -> torch.Tensor:
        pinned.append(int(data[0][0]))
        return data + 1000

    monkeypatch.setattr(torch, "accelerator", FakeAccelerator())
    monkeypatch.setattr(torch_loader._utils.pin_memory, "pin_memory", pin)
    loader = DataLoader(scenes.Squares(), batch_size=scenes.BATCH)
    on, off = {"pin_memory": True}, {"pin_memory": False}
    now = {(0, 2): on, (0, 4): {"num_workers": 1}, (0, 6): off}
    with Harness({1: {"num_workers": 2, **on}}, now) as harness:
        ours, iterator = harness.control(loader), iter(loader)
        served, facts = [], []
        for batch in iterator:
            served.append(int(batch[0][0]))
            facts.append(ours.in_force_now(iterator).pin_memory)
        assert [first >= 1000 for first in served] == [False] * 2 + [True] * 6 + [False] * 2  # two drain
        assert [first % 1000 for first in served] == list(range(0, 30, 3))
        assert facts[1] is False and facts[2] is True and facts[5] is True
        assert all(int(batch[0][0]) >= 1000 for batch in loader)


def test_persistence_is_refused_where_the_dataset_has_epochs() -> None:
    class Epochs(scenes.Squares):
        def set_epoch(self, epoch: int) -> None:
            pass

    with pytest.raises(Refused, match="set_epoch"):
        control(DataLoader(Epochs())).plan({"num_workers": 2, "persistent_workers": True})
    own = control(DataLoader(Epochs(), num_workers=1, persistent_workers=True))
    assert own.plan({"num_workers": 2}).persistent_workers
    sampler = torch.utils.data.DistributedSampler(scenes.Squares(), 2, 0)
    assert control(DataLoader(scenes.Squares(), sampler=sampler)).plan({"num_workers": 2, "persistent_workers": True})


def test_a_dataset_that_holds_an_open_file_gets_no_workers() -> None:
    with Path(__file__).open() as file:
        dataset = scenes.Squares()
        dataset.file = file  # type: ignore[attr-defined]
        loader = DataLoader(dataset)  # else it is gone before it could be looked at
        ours = control(loader)
        with pytest.raises(Refused, match=r"open file \(file: test_swap_groups.py\)"):
            ours.plan({"num_workers": 1})
        assert not ours.refusals()["num_workers"].can
        assert control(DataLoader(dataset, num_workers=1)).plan({"num_workers": 3})


@pytest.mark.parametrize(
    ("body", "refused"), [("train()", True), ("if __name__ == '__main__':\n    train()", False), ("if (", True)]
)
def test_no_workers_that_would_run_the_script_again(
    body: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(body)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    assert control(DataLoader(scenes.Squares())).plan({"num_workers": 1})  # forked, they do not
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: "spawn")
    assert control(DataLoader(scenes.Squares(), num_workers=1)).plan({"num_workers": 2})
    ours = control(DataLoader(scenes.Squares()))
    if refused:
        with pytest.raises(Refused, match="run the script again"):
            ours.plan({"num_workers": 1})
    else:
        assert ours.plan({"num_workers": 1})


def test_asking_for_the_start_method_decides_nothing() -> None:
    code = (
        "import multiprocessing, torch; from torch.utils.data import DataLoader\n"
        "from cockpit.probe.swap import LoaderControl, install\n"
        "LoaderControl(install(torch), DataLoader([1])).refusals()\n"
        "multiprocessing.set_start_method('spawn')\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100, cwd=root)


def test_a_loader_that_lacks_a_part_is_left_alone() -> None:
    loader = DataLoader(scenes.Squares())
    del loader.collate_fn
    assert "has no collate_fn" in str(control(loader).refusals()["num_workers"].reason)


def test_looking_at_a_dataset_runs_none_of_its_code() -> None:
    class Touchy(scenes.Squares):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("asked for %s" % name)

        @property
        def set_epoch(self) -> Any:
            raise AssertionError("property")

    control(DataLoader(Touchy())).refusals()


def test_a_loader_that_makes_its_own_iterators_is_left_alone() -> None:
    class Own(DataLoader):
        def _get_iterator(self) -> Any:
            return (each for each in [torch.tensor([[1]])])

    with Harness() as harness:
        loader = Own(scenes.Squares())
        ours = harness.control(loader)
        assert all("makes its own iterators" in str(found.reason) for found in ours.refusals().values())
        with pytest.raises(Refused, match="makes its own iterators"):
            ours.plan({"num_workers": 2})
        harness.boundary[0] = Group(2, 2, False, False, True)
        assert len(list(loader)) == 1


def test_a_subclass_with_a_foreign_signature_is_changed_like_any_other() -> None:
    class Foreign(DataLoader):
        def __init__(self, root: str) -> None:
            super().__init__(scenes.Squares(), batch_size=scenes.BATCH)
            self.root = root

        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield batch + 1

    with Harness({1: {"num_workers": 2}}, {(0, 2): {"num_workers": 1}}) as harness:
        loader = Foreign("data")
        for _ in range(2):
            assert [int(row[0]) for batch in loader for row in batch] == list(range(1, scenes.SIZE + 1))
    assert len(harness.pids) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_data_pipe_is_left_alone() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    with pytest.raises(Refused, match="data pipe"):
        control(DataLoader(IterableWrapper(range(9)))).plan({"num_workers": 2})


# ---- streams ---------------------------------------------------------------------------------------------------


class Whole(IterableDataset):
    """Knows nothing of workers; counts how often it is iterated in this process."""

    def __init__(self) -> None:
        self.iterated = 0

    def __iter__(self) -> Any:
        self.iterated += 1
        return iter(torch.arange(12))


class Sharded(IterableDataset):
    """Asks in a method of its own, as many do."""

    def __iter__(self) -> Any:
        yield from self._share()

    def _share(self) -> Any:
        info = get_worker_info()
        step, start = (info.num_workers, info.id) if info else (1, 0)
        return torch.arange(12)[start::step]


class Wrapped(IterableDataset):
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        return iter(self.inner)


def test_a_stream_that_does_not_share_itself_out_gets_one_worker_at_most() -> None:
    ours = control(DataLoader(Whole()))
    for asked in ({"num_workers": 2}, {"num_workers": 4, "prefetch_factor": 3}):
        with pytest.raises(Refused, match="every worker would serve the whole stream"):
            ours.plan(asked)
    assert ours.plan({"num_workers": 1}).num_workers == 1
    with pytest.raises(Refused, match="whole stream"):  # fewer would shorten its epoch
        control(DataLoader(Whole(), num_workers=3)).plan({"num_workers": 1})
    assert control(DataLoader(Whole(), num_workers=3)).plan({"prefetch_factor": 4}).prefetch_factor == 4


def test_a_stream_that_shares_itself_out_may_have_any_number() -> None:
    def init(worker: int) -> None:
        get_worker_info()

    for loader in (
        DataLoader(Sharded()),
        DataLoader(Wrapped(Sharded())),
        DataLoader(Whole(), worker_init_fn=init),
    ):
        assert control(loader).plan({"num_workers": 3}).num_workers == 3


def test_a_stream_changes_at_the_boundary_only() -> None:
    ours = control(DataLoader(Sharded()))
    with pytest.raises(Refused, match="changes at the epoch boundary"):
        ours.plan({"num_workers": 2}, now=True)
    assert not ours.refusals()["num_workers"].can_now and ours.refusals()["num_workers"].can
    with Harness({1: {"num_workers": 3}, 3: {"num_workers": 0}}) as harness:
        loader = DataLoader(Sharded(), batch_size=2)
        for _ in range(4):
            assert sorted(int(each) for batch in loader for each in batch) == list(range(12))
        assert len(harness.pids) == 6
        iterator = iter(loader)
        with pytest.raises(Refused):
            harness.control(loader).swap(iterator, Group(2, 2, False, False, True))


def test_a_stream_is_never_iterated_more_often_than_by_the_script() -> None:
    dataset = Whole()
    with Harness({1: {"num_workers": 1}}):
        loader = DataLoader(dataset)
        assert [len(list(loader)) for _ in range(3)] == [12, 12, 12]
    assert dataset.iterated == 1  # the untouched first epoch; workers iterate their own copies


def test_a_stream_whose_change_fails_begins_again_while_nothing_is_lost() -> None:
    def refuse(worker: int) -> None:
        get_worker_info()
        raise OSError("no licence")

    with Harness({1: {"num_workers": 2}}) as harness:
        loader = DataLoader(Sharded(), worker_init_fn=refuse)
        assert [[int(each) for each in loader] for _ in range(3)] == [list(range(12))] * 3
    assert "no licence" in harness.notices[0].reason


# ---- a torch that we do not know -------------------------------------------------------------------------------


def renamed(name: str) -> Any:
    """torch's own module as it would be had it another word for ``name``."""
    import re

    source = re.sub(r"\b%s\b" % name, name + "_renamed", inspect.getsource(torch_loader))
    module = types.ModuleType("torch.utils.data.renamed_dataloader")
    module.__package__ = "torch.utils.data"
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, "renamed", "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    data = types.SimpleNamespace(dataloader=module)
    public = {"accelerator": torch.accelerator, "Tensor": torch.Tensor, "nn": torch.nn}
    return types.SimpleNamespace(utils=types.SimpleNamespace(data=data), **public)


PRIVATE = sorted({name for names in mechanisms.PRIVATE_NAMES.values() for name in names.split()})


def test_the_torch_at_hand_is_known() -> None:
    assert install(torch).off is None


@pytest.mark.parametrize("name", [name for name in PRIVATE if not name.startswith("__")])
def test_a_missing_private_name_turns_the_knobs_off(name: str) -> None:
    off = install(renamed(name)).off
    assert off is not None and name in off


def test_a_call_that_takes_another_way_turns_the_knobs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_loader._MultiProcessingDataLoaderIter, "_get_data", lambda self: None)
    unknown = install(torch)
    assert unknown.off == "this torch's _MultiProcessingDataLoaderIter._get_data does not call _try_get_data"
    loader = DataLoader(scenes.Squares())
    ours = LoaderControl(unknown, loader)
    assert {found.reason for found in ours.refusals().values()} == {unknown.off}
    own = iter(loader)
    assert ours.open(lambda given: own, Group(2, 2, False, False, True)) is own
    assert ours.queue(own) is None and ours.workers(own) == ()


def test_a_torch_without_accelerators_has_none() -> None:
    older = types.SimpleNamespace(utils=torch.utils, Tensor=torch.Tensor, nn=torch.nn)
    assert install(older).has_accelerator() is False

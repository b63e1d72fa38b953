"""One change of loader and kernel knobs whose kernel part fails: all of it goes back, and only then is that said."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader
from watched import Rows, Slow, Stream, train_step


class Fails(Slow):
    """Cannot be run in lower precision."""

    def forward(self, x):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("no kernel for bf16")
        return super().forward(x)


class Training:
    def __init__(self, it, data) -> None:
        self.it, self.model, self.loader = it, Fails(it), DataLoader(data, batch_size=4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.served: list[int] = []
        self.workers: list[int] = []

    def epoch(self, **asked) -> None:
        """An epoch, in whose third step ``asked`` is asked for."""
        for n, batch in enumerate(self.loader):
            if n == 2 and asked:
                self.it.ask("c1", now=True, **asked)
            train_step(self.model, self.optimizer, batch)
            self.served.append(len(batch))
            self.it.spend(300)
            self.it.beat()
            (told,) = self.it.of("loaders")[-1]["loaders"]
            self.workers.append({knob["name"]: knob["in_force"] for knob in told["knobs"]}["num_workers"])


def changes(it) -> list[tuple[str, str]]:
    return [(m["id"], m["state"]) for m in it.of("change")]


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch):
    kind = torch.amp.autocast_mode.autocast
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)


def test_in_the_middle_of_an_epoch(it):
    training = Training(it, Rows(it, 60))
    training.epoch()
    training.epoch(num_workers=1, autocast="bf16")
    assert changes(it) == [("c1", "applying"), ("c1", "rolled_back")], "nothing of our own is told"
    last = it.of("change")[-1]
    assert "no kernel for bf16" in last["reason"] and "stays" not in last["reason"]
    assert last["in_force"] == {"num_workers": 0, "autocast": "off"} and last["before"]["num_workers"] == 0
    assert 1 in training.workers and training.workers[-1] == 0, "it was in force, and is not any more"
    assert sum(training.served) == 120, "no sample twice, none lost"
    assert it.recorder.setting.change is None and not it.probe.asks.waiting
    it.ask("c2", num_workers=1)
    training.epoch()
    assert changes(it)[-1] == ("c2", "settling") and it.recorder.setting.change == "c2"


def test_a_loader_that_cannot_change_at_once_goes_back_at_the_boundary_and_not_before_is_it_said(it):
    training = Training(it, Stream(it, 40))
    training.epoch()
    it.ask("c1", num_workers=1, autocast="bf16")
    training.epoch()
    assert changes(it) == [("c1", "applying")] and training.workers[-1] == 1, "part of it is in force"
    (autocast,) = (row for row in it.of("loaders")[-1]["kernels"] if row["name"] == "autocast")
    assert autocast["in_force"] == "off" and "no kernel for bf16" in autocast["reason"]
    training.epoch()
    assert changes(it) == [("c1", "applying"), ("c1", "rolled_back")] and training.workers[-1] == 0
    blocks = {block["change"] for block in it.of("block")}
    assert "c1" not in blocks, "steps under half a change are nobody's"


def test_where_the_training_ends_before_it_goes_back_the_part_that_stays_is_named(it):
    training = Training(it, Stream(it, 40))
    training.epoch()
    it.ask("c1", num_workers=1, autocast="bf16")
    training.epoch()
    it.probe.at_exit()
    last = it.heard[-1] if it.heard[-1]["m"] == "change" else it.of("change")[-1]
    assert last["state"] == "rolled_back" and "stays: num_workers of test_mixed_changes.py" in last["reason"]
    assert last["in_force"]["num_workers"] == 1


def test_what_a_later_change_has_taken_over_stays(it):
    training = Training(it, Rows(it, 60))
    training.epoch()
    training.epoch(num_workers=1, threads=torch.get_num_threads())
    it.ask("c2", in_order=False)
    training.epoch()
    landing = it.probe.landing
    assert not landing.give_back(it.probe.asks.by_id["c1"], "too late")
    assert it.recorder.setting.change == "c2"


@pytest.mark.parametrize("now", [False, True])
def test_asked_again_while_it_was_landing_is_no_second_change(it, now):
    """With another id: whoever asked could not see that it had landed."""
    training = Training(it, Rows(it, 40))
    training.model = Slow(it)
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01)
    training.epoch()
    training.epoch(num_workers=1, autocast="bf16")
    it.ask("c2", now=now, num_workers=1, autocast="bf16")
    training.epoch()
    assert changes(it) == [("c1", "applying"), ("c1", "settling"), ("c2", "dropped")]
    assert it.recorder.setting.change == "c1" and not it.probe.asks.waiting

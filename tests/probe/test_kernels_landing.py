"""When an ask for kernel knobs lands, what is said about it, and in which thread it never lands."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from kernels_harness import Net, batch, control, net

from cockpit.probe.kernels.landing import Landing
from cockpit.probe.recorder import Recorder

HERE, ELSEWHERE = 1, 2


class Ask:
    def __init__(self, name: str, kernels: dict[str, Any], now: bool = False, knobs: dict[str, Any] | None = None):
        self.id, self.kernels, self.knobs, self.now = name, kernels, knobs or {}, now
        self.due: tuple[str, float] | None = None
        self.state = "queued"
        self.before: dict[str, Any] = {}
        self.in_force: dict[str, Any] = {}
        self.stall_ns = 0
        self.looked = self.kernels_found = False
        self.former = None


class Asks:
    began_ns = 0

    def __init__(self) -> None:
        self.waiting: list[Ask] = []
        self.kernel_set: dict[str, Any] = {}
        self.said: list[tuple[str, str, str | None]] = []

    def is_due(self, ask: Ask, record: Any) -> bool:
        return ask.due is None or record >= ask.due[1]

    def move(self, ask: Ask, state: str, reason: str | None = None) -> None:
        ask.state = state
        self.said.append((ask.id, state, reason))
        if state in ("dropped", "refused", "rolled_back"):
            self.forget(ask)

    def forget(self, ask: Ask) -> None:
        self.waiting = [other for other in self.waiting if other is not ask]


class Scene:
    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.now = model, 0
        self.recorder = Recorder(lambda: self.now, lambda: False)
        self.recorder.thread = HERE
        self.asks = Asks()
        self.landing = Landing(self.recorder, self.asks, control(model))

    def ask(self, name: str, now: bool = False, due: Any = None, knobs: Any = None, **kernels: Any) -> Ask:
        ask = Ask(name, kernels, now, knobs)
        ask.due = due
        self.asks.waiting.append(ask)
        return ask

    def step(self, forward: bool = True) -> None:
        if forward:
            self.model(batch())
        self.recorder.steps += 1
        self.landing.at_step()

    def words(self) -> list[tuple[str, str]]:
        return [said[:2] for said in self.asks.said]

    def row(self, name: str) -> Any:
        return next(row for row in self.landing.rows if row.name == name)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    kind, threads = torch.amp.autocast_mode.autocast, torch.get_num_threads()
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def it():
    return Scene(net())


def test_what_is_compiled_while_a_change_comes_is_not_told_before_it(monkeypatch):
    """Dynamo's import and whatever else `compile` needs takes seconds: they are not the doing of the change before."""
    scene = Scene(net())
    scene.step()
    heard = []
    landing, land = scene.landing, scene.landing.kernels.land

    def slow(knobs: dict[str, Any]) -> Any:
        landing.kernels.watch.total_ns += 2_000_000_000
        heard.append(landing.compiled().total_ns)
        return land(knobs)

    monkeypatch.setattr(landing.kernels, "land", slow)
    scene.ask("c1", now=True, threads=torch.get_num_threads() + 1)
    scene.step()
    assert heard == [0] and ("c1", "applying") in scene.words()
    assert landing.compiled().total_ns == 2_000_000_000, "after it was said to come, it is told"
    landing.kernels.watch.total_ns = 0


def test_at_the_boundary_and_settled_after_a_whole_step(it):
    it.ask("c1", autocast="bf16")
    it.step()
    assert it.words() == [] and it.landing.waits
    it.landing.at_boundary(0, HERE)
    assert it.words() == [("c1", "applying")] and it.recorder.setting.change == "c1"
    it.step()
    assert it.words()[-1] == ("c1", "settling")
    assert it.row("autocast").in_force == "bf16" and not it.landing.waits


def test_before_and_in_force_are_what_was_found(it):
    own = torch.get_num_threads()
    ask = it.ask("c1", now=True, autocast="bf16", threads=own + 1)
    it.step()
    it.step()
    assert ask.before == {"autocast": "script", "threads": own}
    assert ask.in_force == {"autocast": "bf16", "threads": own + 1}


def test_now_lands_at_the_next_step(it):
    it.ask("c1", now=True, threads=3)
    it.step()
    assert it.words() == [("c1", "applying")] and torch.get_num_threads() == 3


def test_read_ahead_loaders_leave_it_to_the_trainings_thread(it):
    it.ask("c1", autocast="bf16")
    it.landing.at_boundary(0, ELSEWHERE)
    it.landing.at_boundary(0, ELSEWHERE)
    assert it.words() == [] and it.landing.kernels.roots[0].idle
    it.step()
    it.step()
    assert it.words() == [("c1", "applying"), ("c1", "settling")]


def test_schedule(it):
    it.ask("e", due=("epoch", 2), threads=3)
    it.ask("s", due=("step", 2), threads=4)
    it.ask("t", due=("time", 9), threads=5)
    it.landing.at_boundary(1, HERE)
    it.step()
    assert it.words() == []
    it.step()
    assert it.words() == [("s", "applying")]
    it.now = int(9e9)
    it.step()
    it.landing.at_boundary(2, HERE)
    assert [name for name, word in it.words() if word == "applying"] == ["s", "t", "e"]
    assert torch.get_num_threads() == 3


def test_without_any_loader_a_step_is_as_good_as_a_boundary(it):
    it.recorder.loaderless = True
    it.ask("c1", threads=3)
    it.step()
    assert it.words() == [("c1", "applying")]


def test_refused_changes_nothing_and_keeps_the_reason(it):
    own = torch.get_num_threads()
    it.ask("c1", now=True, threads=own + 1, autocast="fp16")
    it.step()
    assert it.words() == [("c1", "refused")] and "GradScaler" in it.asks.said[0][2]
    assert torch.get_num_threads() == own and it.landing.kernels.roots[0].idle
    assert "GradScaler" in it.row("autocast").reason
    it.ask("c2", now=True, autocast="bf16")
    it.step()
    assert it.row("autocast").reason is None


def test_rolled_back_with_its_reason():
    class Failing(Net):
        def forward(self, x):
            out = super().forward(x)
            torch.zeros(6, 4).scatter_add_(0, torch.zeros(6, 4, dtype=torch.long), out)
            return out

    it = Scene(Failing())
    it.ask("c1", now=True, autocast="bf16")
    it.step()
    it.step()
    assert it.words() == [("c1", "applying"), ("c1", "rolled_back")]
    assert "RuntimeError" in it.asks.said[1][2] and "RuntimeError" in it.row("autocast").reason
    it.step()
    assert it.words()[2:] == []


def test_set_from_the_start_comes_with_the_first_step(it):
    it.asks.kernel_set = {"autocast": "bf16", "threads": 3}
    assert it.landing.waits
    it.step()
    assert torch.get_num_threads() == 3
    it.step()
    assert it.row("autocast").in_force == "bf16" and not it.words()


def test_set_from_the_start_and_impossible_is_told_in_the_row(it):
    it.asks.kernel_set = {"autocast": "fp16", "threads": 3}
    it.step()
    assert "GradScaler" in it.row("autocast").reason and torch.get_num_threads() == 3


def test_dropped_while_it_waits(it):
    ask = it.ask("c1", autocast="bf16")
    it.landing.at_boundary(0, ELSEWHERE)
    ask.state = "dropped"
    it.asks.forget(ask)
    it.step()
    assert it.words() == [] and it.landing.kernels.roots[0].idle


def test_a_change_of_loaders_takes_kernel_knobs_along(it):
    ask = it.ask("c1", knobs={"num_workers": 2}, threads=3)
    it.landing.at_boundary(0, HERE)
    assert it.words() == [], "its loader knobs lead"
    it.landing.plan(ask)
    it.landing.ride(ask)
    ask.state = "applying"
    it.step()
    assert it.words() == [] and ask.in_force == {"threads": 3}


def test_rows_are_news_only_when_something_changed(it):
    it.step()
    assert it.landing.news
    it.landing.news = False
    it.step()
    assert not it.landing.news
    assert isinstance(it.landing._settling, deque)


def test_its_own_failure_is_told_with_each_row(it):
    it.step()
    assert it.landing.told({}) == it.landing.rows
    assert all(not row.can and "failed: x" in row.reason for row in it.landing.told({"kernels": "x"}))


@pytest.mark.parametrize("asked", [{"autocast": "bf16"}, {"threads": 3}, {"autocast": "bf16", "threads": 3}])
def test_asked_again_while_it_was_landing_is_no_second_change(it, asked):
    """With another id: whoever asked could not see that it had landed."""
    it.ask("c1", **asked)
    it.landing.at_boundary(0, HERE)
    trial = it.recorder.trial
    it.ask("c2", now=True, **asked)
    it.step()
    assert it.words() == [("c1", "applying"), ("c1", "settling"), ("c2", "dropped")]
    assert it.recorder.trial is trial and it.recorder.setting.change == "c1" and not it.asks.waiting
    it.ask("back", now=True, **dict.fromkeys(asked, "script"))
    it.step()
    it.ask("again", now=True, **asked)
    it.step()
    assert [said for said in it.words() if said[1] == "applying"][1:] == [("back", "applying"), ("again", "applying")]


def test_what_the_script_has_set_again_is_a_change(it):
    it.ask("c1", now=True, threads=3)
    it.step()
    torch.set_num_threads(2)
    it.ask("c2", now=True, threads=3)
    it.step()
    assert it.words()[-1] == ("c2", "applying") and torch.get_num_threads() == 3

"""``set``, ``undo`` and ``redo`` answer 1 for what is refused, also where that takes the training as long as a step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.events import beginning, block, knob, loader

from cockpit.cli import answers
from cockpit.cli import ask as asking
from cockpit.cli import set as setting
from cockpit.cli.answers import LOOK_S, PATIENCE_S
from cockpit.cli.verbs import BY_NAME
from cockpit.cli.words import Words
from cockpit.engine import changes
from cockpit.history.fold import fold_all
from cockpit.model.events import ChangeAsked, ChangeMoved, LoadersSeen

WHY = "the script differentiates its gradients once more"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Asks for a kernel knob whose row says that it cannot be had; it is refused when the step ends."""

    def ask(name: str, value: str, step_s: float, *options: str, verb: str = "set") -> Any:
        clock = [0.0]
        waiting = fold_all([
            *beginning(), LoadersSeen(1001.0, (), (knob(name, "off", "off", can=False, can_now=False, reason=WHY),)),
            block(1002.0, 4, 8 / step_s, steps=4), ChangeAsked(1003.0, "c1", {name: value}, "--now" in options),
        ])  # fmt: skip
        refused = fold_all([ChangeMoved(1004.0, "c1", "refused", 7, reason=WHY)], waiting)
        for module in (setting, asking):
            monkeypatch.setattr(module, "find", lambda *_: SimpleNamespace(name="it"))
            monkeypatch.setattr(module, "ask", lambda *_, **__: {"id": "c1"})
        monkeypatch.setattr(setting, "has_ended", lambda _: False)
        monkeypatch.setattr(answers, "state_of", lambda _: refused if clock[0] > step_s else waiting)
        sleep: Callable[[float], None] = lambda seconds: clock.__setitem__(0, clock[0] + seconds)  # noqa: E731
        monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
        switches = {option: [()] for option in options}
        if verb == "set":
            status = setting.call(BY_NAME[verb], Words(switches, [f"{name}={value}"]))
        else:
            status = asking.call(BY_NAME[verb], Words(switches))
        return status, capsys.readouterr(), clock[0]

    return ask


@pytest.mark.parametrize(("name", "value"), [("compile", "default"), ("autocast", "bf16"), ("matmul", "high")])
@pytest.mark.parametrize("step_s", [0.05, 5.0, 25.0])
def test_what_cannot_be_had_is_answered_with_one(
    answer: Callable[..., Any], name: str, value: str, step_s: float
) -> None:
    status, said, took_s = answer(name, value, step_s, "--now")
    assert status == 1 and f"refused, {WHY}" in said.err
    assert took_s <= step_s + 2 * LOOK_S, "as soon as it is known"
    assert said.err.count(WHY) == said.err.count("\n") == 1, "once"


def test_with_json_too(answer: Callable[..., Any]) -> None:
    status, said, _ = answer("compile", "default", 5.0, "--now", "--json")
    assert status == 1 and json.loads(said.out) == {"id": "c1"} and "refused" in said.err


def test_what_a_boundary_decides_is_not_waited_for_and_its_row_is_told(answer: Callable[..., Any]) -> None:
    status, said, took_s = answer("compile", "default", 5.0)
    assert status == 0 and took_s <= PATIENCE_S and WHY in said.err


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_what_cannot_be_had_again_is_answered_with_one_too(answer: Callable[..., Any], verb: str) -> None:
    status, said, _ = answer("compile", "default", 5.0, "--now", verb=verb)
    assert status == 1 and f"refused, {WHY}" in said.err


def test_what_has_to_wait_for_an_end_that_never_comes_says_so_also_where_it_was_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endless iterable dataset: its workers change between two epochs only, and it has one."""
    why = "num_workers: an iterable dataset has no indices to hand over: changes at the epoch boundary"
    stream = loader(knobs=(knob("num_workers", 1, 1, can_now=False, reason=why),), boundaries=False)
    stream = replace(stream, steps_per_epoch=None)
    began = fold_all([*beginning(), LoadersSeen(1001.0, (stream,)), block(1002.0, 4, 80, steps=4)])
    decision = changes.ask(began, 1003.0, "c1", {"num_workers": 2}, now=True)
    assert decision.result["now"] is False, "nobody is promised that it comes at once"
    told = fold_all(decision.events, began)
    monkeypatch.setattr(answers, "state_of", lambda _: told)
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=iter(range(100)).__next__, sleep=lambda _: None))
    refused, notes = answers.to_be_known(SimpleNamespace(name="it"), ["c1"])  # type: ignore[arg-type]
    assert (refused, notes) == ([], [why, "when: no epoch's end in sight"])


@pytest.mark.parametrize(("workers", "told"), [({"num_workers": 2}, False), ({}, True)])
def test_what_needs_workers_is_not_said_of_a_change_that_asks_for_them(
    monkeypatch: pytest.MonkeyPatch, workers: dict[str, int], told: bool
) -> None:
    why = "needs num_workers of 1 or more"
    rows = knob("num_workers", 0, 0), knob("persistent_workers", "off", "off", can=False, can_now=False, reason=why)
    state = fold_all([
        *beginning(), LoadersSeen(1001.0, (loader(knobs=rows),)), block(1002.0, 4, 80, steps=4),
        ChangeAsked(1003.0, "c1", {**workers, "persistent_workers": "on"}, False),
    ])  # fmt: skip
    monkeypatch.setattr(answers, "state_of", lambda _: state)
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=iter(range(100)).__next__, sleep=lambda _: None))
    _, notes = answers.to_be_known(SimpleNamespace(name="it"), ["c1"])  # type: ignore[arg-type]
    assert (why in "".join(notes)) is told

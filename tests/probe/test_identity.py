"""By what name a training reports to a tracker: seen without asking anybody, and only where one name is true."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cockpit.probe.identity import EVERY_NS, Identity


def wandb(*ids: str | None) -> Any:
    """The module as a script leaves it after each ``init``."""
    module: Any = ModuleType("wandb")
    module.run = None
    module.begin = lambda each: setattr(module, "run", each and SimpleNamespace(_settings=SimpleNamespace(run_id=each)))
    return module


class Stack:
    def __init__(self, *runs: str) -> None:
        self.runs = [SimpleNamespace(info=SimpleNamespace(run_id=run)) for run in runs]

    def get_all_thread_values(self) -> dict[int, list[Any]]:
        return {1: self.runs, 2: []}


def test_a_run_is_told_once_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    module, identity = wandb(), Identity()
    monkeypatch.setitem(sys.modules, "wandb", module)
    assert identity.look(0) is None and identity.last_words() == []
    module.begin("a1b2")
    assert identity.look(10) is None, "not looked at again yet"
    told = identity.look(EVERY_NS)
    assert told == {"m": "identity", "env": {"WANDB_RUN_ID": "a1b2", "WANDB_RESUME": "allow"}}
    assert identity.look(2 * EVERY_NS) is None and identity.last_words() == [told]
    module.begin(None)  # finished: a later process goes on under it all the same
    assert identity.look(3 * EVERY_NS) is None and identity.env["WANDB_RUN_ID"] == "a1b2"


def test_several_runs_in_one_process_have_no_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module, identity = wandb(), Identity()
    monkeypatch.setitem(sys.modules, "wandb", module)
    module.begin("a1b2")
    identity.look(0)
    module.begin("c3d4")
    assert identity.look(EVERY_NS) == {"m": "identity", "env": {}}


@pytest.mark.parametrize("as_list", [True, False])
def test_the_outermost_run_of_mlflow(monkeypatch: pytest.MonkeyPatch, as_list: bool) -> None:
    fluent: Any = ModuleType("mlflow.tracking.fluent")
    stack = Stack("outer", "nested")
    fluent._active_run_stack = stack.runs if as_list else stack
    monkeypatch.setitem(sys.modules, "mlflow.tracking.fluent", fluent)
    told = Identity().look(0)
    assert told is not None and told["env"] == {"MLFLOW_RUN_ID": "outer"}


@pytest.mark.parametrize("odd", [None, 7, "", SimpleNamespace(), SimpleNamespace(_settings=None)])
def test_a_module_that_is_another_says_nothing(monkeypatch: pytest.MonkeyPatch, odd: Any) -> None:
    module: Any = ModuleType("wandb")
    module.run = odd
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setitem(sys.modules, "mlflow.tracking.fluent", ModuleType("mlflow.tracking.fluent"))
    assert Identity().look(0) is None

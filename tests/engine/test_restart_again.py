"""A second restart: what the first process told of the script, the second may not have been able to see."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hearing import Room
from support.events import NOISY, Story, beginning

from cockpit.engine.keeper import started
from cockpit.engine.record import Record
from cockpit.engine.restarts import Restarts
from cockpit.engine.rundir import rundir_at, write_json
from cockpit.history.fold import fold_all
from cockpit.history.journal import Journal
from cockpit.history.state import State
from cockpit.model.errors import CockpitError
from cockpit.probe import lives


def test_a_variable_that_the_script_sets_is_refused_in_every_process(tmp_path: Path) -> None:
    room, story = Room(), Story()
    state = replace(fold_all([*beginning(), *story.blocks([50.0, *NOISY])]), step=100)
    record = Record(state, Journal(tmp_path, State()))
    life = tmp_path / "life-2"
    life.mkdir()
    write_json(life / lives.PLAN, {"set_early": ["HF_HOME"]})
    mine = {"keeper": os.getpid(), "training": os.getpid(), "training_started": started(os.getpid())}
    write_json(life / lives.PIDS, mine)
    assert lives.claim_go(str(life), {lives.HANDOFF: "whole"})
    room.hello(1, os.getpid(), set_early=["TF_CPP_MIN_LOG_LEVEL"])
    room.hear(1, m="session", names=["model"], epochs=9, epoch=3)
    it = Restarts(rundir_at(tmp_path), record, room.ears, lambda: 1900.0)
    for name in ("HF_HOME", "TF_CPP_MIN_LOG_LEVEL"):
        with pytest.raises(CockpitError, match=f"sets {name} itself"):
            it.ask({name: "x"}, "r2")
    assert not record.state.ledger

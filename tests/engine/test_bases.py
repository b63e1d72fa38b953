"""What a new process could go on from: nothing is offered that the last one has found it could not use."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cockpit.engine.bases import Bases
from cockpit.engine.rundir import RunDir
from cockpit.engine.scripted_files import hand_off
from cockpit.history.state import State
from cockpit.model.crash import SessionSeen
from cockpit.model.names import ENV_RUN
from cockpit.probe import lives
from cockpit.probe.handoff.claim import close
from cockpit.probe.handoff.folder import DAMAGED


def test_what_was_found_damaged_is_not_offered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_RUN, str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    state = State(script="a.py", step=90, session=SessionSeen(1.0, ("model",), 9, 4))
    bases = Bases(RunDir("a", tmp_path, tmp_path), time.time)
    start, _ = bases.find(state)
    assert start is not None and start.key == "start", "none was due before"
    offered = []
    hand_off(1, 9, 40)
    hand_off(2, 9, 80)
    for number in ("2", "1"):
        base, _ = bases.find(state)
        offered.append(base.key if base is not None else None)
        lives.mark(str(tmp_path / "handoff" / number), DAMAGED)
    for number in ("1", "2"):
        (tmp_path / "handoff" / number / DAMAGED).rename(tmp_path / "handoff" / number / "whole")
    assert bases.find(state)[0] is not None
    close(str(tmp_path / "handoff"), "another one has begun")
    close(str(tmp_path / "handoff"), "for a second reason")
    assert bases.find(state) == (None, "its hand-offs cannot be gone on from: another one has begun")
    (tmp_path / "handoff" / "closed").unlink()
    for number in ("1", "2"):
        (tmp_path / "handoff" / number / "whole").rename(tmp_path / "handoff" / number / DAMAGED)
    none, why = bases.find(state)
    assert offered == ["hand-off 2", "hand-off 1"]
    assert none is None and why == f"its hand-offs in {tmp_path / 'handoff'} are damaged", "nor the start"

"""What a next life of a run is made of: the environment of the present process, the settings in force, its keeper.

Called by ``restarts``. Nothing of an environment is written to the disk: it may hold secrets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cockpit.history.knobs import tuned_loaders, tuned_setup
from cockpit.history.state import State
from cockpit.model.names import ENV_RUN
from cockpit.sensors.procfs import read_bytes

from . import processes
from .launch import bare_environment, environment
from .rundir import RunDir

KEEPER = Path(__file__).with_name("keeper.py")


def start_of(state: State, start: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """As ``start.json`` of the run, but with what is in force now, and without what has had its turn."""
    seen = {loader.id for loader in state.loaders}
    loaders = {name: knobs for name, knobs in (start.get("loaders") or {}).items() if name not in seen}
    begun = {entry.id for entry in state.ledger}
    return {
        **start,
        "set": tuned_setup(state),
        "loaders": {**loaders, **tuned_loaders(state)},
        "at": [item for item in start.get("at") or () if item.get("id") not in begun],
        "began_s": facts.get("started_s"),
    }


def environ_of(run: RunDir, pids: processes.Pids | None) -> dict[str, str] | None:
    """What the present process was started with; where it wrote a title over that, what its keeper was."""
    if pids is None:
        return None
    own = _pairs(read_bytes(f"/proc/{pids.training}/environ"))
    if own is not None and ENV_RUN in own:
        return own
    keepers = _pairs(read_bytes(f"/proc/{pids.keeper}/environ"))
    return environment(keepers, run.data, run.socket) if keepers is not None else None


def _pairs(block: bytes | None) -> dict[str, str] | None:
    if not block:
        return None
    pairs = [pair.partition(b"=") for pair in block.split(b"\0") if b"=" in pair]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def start_keeper(run: RunDir, folder: Path, plan: bytes, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with open(run.engine_log, "ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            env={name: value for name, value in bare_environment(environ).items() if not name.startswith("COCKPIT_")},
            start_new_session=True,
        )
    assert keeper.stdin is not None
    with keeper.stdin:
        keeper.stdin.write(plan)
    return keeper

"""What a next life of a run is made of: the environment of the present process, the settings in force, its keeper.

Called by ``restarts``. Nothing of an environment is written to the disk: it may hold secrets.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.history.knobs import tuned_loaders, tuned_setup
from cockpit.history.state import State
from cockpit.model.environment import AS_BEGAN
from cockpit.model.knobs import ENV
from cockpit.model.names import ENV_LIFE, ENV_RUN, ENV_WARM, ENV_WAS, START_FILE
from cockpit.probe import lives
from cockpit.probe.warm import LEAVE_S
from cockpit.sensors.procfs import read_bytes

from . import processes
from .crash_plan import Base, Settings
from .launch import bare_environment, environment, with_variables
from .life_files import prepared
from .next_environ import Known
from .rundir import RunDir, read_json, write_json

BACK = "back"
"""In the folder of a life: what the process of before starts from, should the new one fail."""
KEEPER = Path(__file__).with_name("keeper.py")
LIFE_BYTES = 64 << 10
"""What the files of a life take at the most, its environment not among them."""


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


def leave_s_of(facts: Mapping[str, Any]) -> float:
    """How long a process that has handed over may take to end: uploads and what else runs at exit have the time that
    a stop would give them (``--grace``), and never less than usual."""
    grace_s = facts.get("grace_s")
    return max(LEAVE_S, float(grace_s)) if isinstance(grace_s, (int, float)) else LEAVE_S


def environ_of(run: RunDir, pids: processes.Pids | None, known: Known) -> dict[str, str] | None:
    """What the present process was started with; where it wrote a title over that, what its keeper was, which has the
    environment of before, and what was asked for since (``known``)."""
    if pids is None:
        return None
    own = _pairs(read_bytes(f"/proc/{pids.training}/environ"))
    if own is not None and ENV_RUN in own:
        return own
    keepers = _pairs(read_bytes(f"/proc/{pids.keeper}/environ"))
    if keepers is None:
        return None
    asked = {name: now for name, (_, now) in known.items() if now != AS_BEGAN}
    return environment(with_variables(keepers, asked), run.data, run.socket)


def _pairs(block: bytes | None) -> dict[str, str] | None:
    if not block:
        return None
    pairs = [pair.partition(b"=") for pair in block.split(b"\0") if b"=" in pair]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


@dataclass(frozen=True)
class Beginning:
    """A process that follows one that is gone. ``base``: what it goes on from; ``asked``, ``before``: as the ledger
    has it. ``environ``: whole, as the one before had it or as it was asked for; ``back``: what is tried instead where
    it ends before its first step. ``since_s``: since when nobody trains. ``like``: what it inherits beside that.
    ``stopped``: a training that ran well was stopped for it, and must not be lost if it fails."""

    change: str
    base: Base
    settings: Settings
    environ: Mapping[str, str]
    asked: Mapping[str, Any]
    before: Mapping[str, Any]
    since_s: float
    like: Mapping[str, Any]
    back: Mapping[str, str] | None = None
    stopped: bool = False


def begin_next(run: RunDir, state: State, begun: Beginning) -> subprocess.Popen[bytes]:
    """Start it at once: it is the run's present life from the moment that its folder is there. Raises OSError."""
    facts = run.facts()
    _be_here(run, facts)
    number = 2 + sum(1 for _ in lives.folders(str(run.data)))
    folder = run.data / f"life-{number}"
    base, settings = begun.base, begun.settings
    told = {"change": begun.change, "asked": dict(begun.asked), "before": dict(begun.before), "output": str(run.output)}
    from_what = {"base": base.key, "goes_on_from": base.words, "stopped": begun.stopped}
    seen = {loader.id for loader in state.loaders}
    start = start_of(state, read_json(run.start_file), facts)
    unseen = {name: knobs for name, knobs in start["loaders"].items() if name not in seen}
    names = [name[len(ENV) :] for name in begun.asked if name.startswith(ENV)]
    loaders = {**unseen, **{name: dict(knobs) for name, knobs in settings.loaders.items()}}
    mine = {"set": dict(settings.setup), "loaders": loaders, "change": begun.change, "env": names}
    # whoever goes on from the start has no hand-off, and must not look for one
    go = {lives.HANDOFF: base.path or None, "epoch": base.epoch, "step": base.step, "epochs_left": base.epochs_left}
    with prepared(folder) as unnamed:
        write_json(unnamed / lives.PLAN, {**told, **from_what, "settings": settings.word})
        write_json(unnamed / START_FILE, {**start, **mine})
        (unnamed / BACK).mkdir(mode=0o700)
        write_json(unnamed / BACK / START_FILE, {**start, **mine, "change": state.current.change, "env": []})
        write_json(unnamed / lives.GO, {**go, "at_s": begun.since_s})
    what = {"argv": [*facts["argv"], *base.argv], "cwd": facts["cwd"], "window": facts.get("window")}
    environ = _plain(begun.environ)
    plan = {**what, "env": {**environ, ENV_LIFE: str(folder)}, "output": str(run.output), "like": dict(begun.like)}
    if begun.back is not None:
        gone = {"pid": 0, "started_ticks": None}
        plan |= {"old": gone, "back": {**what, "env": {**_plain(begun.back), ENV_LIFE: str(folder / BACK)}}}
    try:
        return start_keeper(run, folder, json.dumps(plan).encode(), environ)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)  # nothing has begun: the run ends as its last process did
        raise


def why_not(run: RunDir) -> str | None:
    """Why the files of a new life could not be written now."""
    try:
        with tempfile.TemporaryFile(dir=run.data) as file:
            file.write(bytes(LIFE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"nothing can be written into the folder of the run: {error.strerror or error}"
    return None


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in (ENV_LIFE, ENV_WARM)}


def _be_here(run: RunDir, facts: Mapping[str, Any]) -> None:
    """A machine that was started anew since: from now on the run's pids are of this start."""
    if not processes.is_here(dict(facts)):
        write_json(run.facts_file, {**facts, "boot": processes.boot_id(), "host": socket.gethostname()})


def _is_ours(name: str) -> bool:
    """But for what others were when the run began: whoever looks for that here may find it nowhere else."""
    return name.startswith("COCKPIT_") and not name.startswith(ENV_WAS)


def start_keeper(run: RunDir, folder: Path, plan: bytes, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with open(run.engine_log, "ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            env={name: value for name, value in bare_environment(environ).items() if not _is_ours(name)},
            start_new_session=True,
        )
    assert keeper.stdin is not None
    with keeper.stdin:
        keeper.stdin.write(plan)
    return keeper

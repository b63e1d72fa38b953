"""The runs of this user: listing them, and finding the one that a person means. Called by every verb.

Reads files and /proc only: it never starts or asks an engine, so it is quick whatever state the runs are in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cockpit.history.journal import has_ended
from cockpit.model.errors import NoSuchRun
from cockpit.probe import lives

from .processes import is_alive, is_here, other_host, read_exit, read_pids
from .rundir import RunDir, default_sockets, read_json, rundir_at, runs_folder

STARTING_S_AT_MOST = 30.0


@dataclass(frozen=True)
class Listed:
    """One run at a glance. ``state``: starting, running, ended, lost, or elsewhere (on another machine that shares
    the folder, whose processes cannot be seen from here). ``pid``: the training's.
    """

    run: RunDir
    state: str
    started_s: float
    pid: int | None
    exit_status: int | None
    script: str


def list_runs(state_dir: Path | None = None, environ: Mapping[str, str] | None = None) -> list[Listed]:
    """The newest first: runs under ``state_dir`` alone; without one, those of the default folder and those elsewhere
    that still have a pointer.
    """
    folder = runs_folder(state_dir, os.environ if environ is None else environ)
    found: dict[Path, RunDir] = {}
    # who names a folder means that folder: elsewhere another run of the same name may be under way
    for data in (*_folders(folder), *(_pointed(default_sockets()) if state_dir is None else ())):
        run = rundir_at(data)
        if run.facts_file.is_file():
            found.setdefault(run.data, run)
    return sorted((look(run) for run in found.values()), key=lambda item: item.started_s, reverse=True)


def resolve(word: str | None = None, state_dir: Path | None = None, environ: Mapping[str, str] | None = None) -> RunDir:
    """The run called ``word`` (a name, a unique prefix, a data folder); without one the only running, else the newest.

    Raises NoSuchRun with a sentence.
    """
    if word and os.sep in word and (Path(word) / "run.json").is_file():
        return rundir_at(Path(word))
    runs = list_runs(state_dir, environ)
    if not runs:
        raise NoSuchRun("there are no runs yet: start one with cockpit run SCRIPT", NoSuchRun.code)
    if word is None:
        running = [item for item in runs if item.state in ("starting", "running")]
        if len(running) > 1:
            names = ", ".join(item.run.name for item in running)
            raise NoSuchRun(f"{len(running)} runs are running: name one of {names}")
        return (running or runs)[0].run
    exact = [item for item in runs if item.run.name == word]
    alive = [item for item in exact if item.state in ("starting", "running")]
    if len(alive) > 1:
        raise NoSuchRun(f"{len(alive)} running runs are called {word!r}: say which with --state-dir")
    if exact:
        return (alive or exact)[0].run
    close = [item for item in runs if item.run.name.startswith(word)]
    if len(close) == 1:
        return close[0].run
    if close:
        raise NoSuchRun(f"{word!r} could be " + " or ".join(sorted(item.run.name for item in close)))
    raise NoSuchRun(f"no run is called {word!r}: cockpit ls shows the runs there are")


def look(run: RunDir) -> Listed:
    """The run's state as files and processes tell it."""
    facts = run.facts()
    pids, ended = read_pids(run), read_exit(run)
    started_s = facts.get("started_s")
    return Listed(
        run=run,
        state=_state(run, facts),
        started_s=started_s if isinstance(started_s, (int, float)) else 0.0,
        pid=pids.training if pids else None,
        exit_status=ended[0] if ended else None,
        script=str(facts.get("script", "")),
    )


def _state(run: RunDir, facts: dict[str, object]) -> str:
    if read_exit(run) is not None:
        return "running" if _may_go_on(run, facts) else "ended"
    if not is_here(facts):
        return "lost" if other_host(facts) is None else "elsewhere"
    pids = read_pids(run)
    if pids is not None:
        # a keeper outlives the training for a moment, or is about to start another process in its place
        keeper = pids.keeper_started is not None and is_alive(pids.keeper, pids.keeper_started)
        if keeper or is_alive(pids.training, pids.training_started):
            return "running"
        return "lost" if read_exit(run) is None else "ended"
    return "starting" if is_young(run) else "lost"


def _may_go_on(run: RunDir, facts: dict[str, object]) -> bool:
    """Whether its engine, which may have another process follow, has not said yet that this was the end."""
    # without being asked to it tries again what a restart has stopped
    tries = facts.get("on_crash") or facts.get("resume_with") or run.life != run.data
    if not tries or not is_here(facts):
        return False
    engine = read_json(run.engine_file)
    alive = isinstance(pid := engine.get("pid"), int) and is_alive(pid, engine.get("started_ticks"))
    return alive and not is_over(run)


def is_young(run: RunDir) -> bool:
    """Whether its present process has only just been asked for, so that its pids may not be known yet."""
    life = run.life
    begun = run.facts_file if life == run.data else life / lives.GO
    try:
        return time.time() - begun.stat().st_mtime < STARTING_S_AT_MOST
    except OSError:
        return False


def is_over(run: RunDir) -> bool:
    """Whether the journal knows the end of the run, so that nothing is left for an engine to do."""
    return has_ended(run.data)


def _folders(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _pointed(sockets: Path) -> list[Path]:
    """Data folders named by pointers, only those in a folder that is ours; pointers to nowhere are removed."""
    found = []
    try:
        pointers = list(sockets.glob("*.run")) if os.lstat(sockets).st_uid == os.getuid() else []
        for pointer in pointers:
            data = Path(os.fsdecode(pointer.read_bytes()))
            if data.is_dir():
                found.append(data)
            else:
                pointer.unlink(missing_ok=True)
                pointer.with_suffix(".sock").unlink(missing_ok=True)
    except OSError:
        return found
    return found

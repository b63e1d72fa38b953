"""Where a run lives: its data folder, and its socket in a folder found from the uid alone.

Made by ``start``, read by every verb and by the engine. ``$XDG_RUNTIME_DIR`` is not used: it is deleted when the last
login ends, which is when a training most needs its cockpit. Nothing here talks to a process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.model.errors import StartError
from cockpit.model.names import ERROR_FILE, SCHEMA, START_FILE
from cockpit.probe import lives


@dataclass(frozen=True)
class RunDir:
    """The files of one run. ``name`` is what people call it, ``data`` is its folder (absolute)."""

    name: str
    data: Path
    sockets: Path

    @property
    def hash(self) -> str:
        """Short and unique for the data folder: socket paths over 107 bytes do not work."""
        return hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]

    @property
    def socket(self) -> Path:
        """The engine's unix socket."""
        return self.sockets / f"{self.hash}.sock"

    @property
    def pointer(self) -> Path:
        """A file beside the socket that names the data folder."""
        return self.sockets / f"{self.hash}.run"

    @property
    def output(self) -> Path:
        """What the training itself printed, both streams."""
        return self.data / "output.log"

    @property
    def life(self) -> Path:
        """Where the keeper of the present process writes: the run's own folder, or that of its newest hot restart.

        Asked anew each time, since a training hands over to the next process without waiting for anybody.
        """
        return Path(lives.current(str(self.data)))

    @property
    def exit_status(self) -> Path:
        """Written by the keeper when the training has ended: a number, and on the next line a reason, if any."""
        return self.life / lives.EXIT

    @property
    def pids(self) -> Path:
        """Written by the keeper: its own pid, the training's, and when each began (clock ticks since boot)."""
        return self.life / lives.PIDS

    @property
    def facts_file(self) -> Path:
        """``run.json``: what was started, where and when."""
        return self.data / "run.json"

    @property
    def start_file(self) -> Path:
        """``start.json``: what the probe must know before the first message."""
        return self.data / START_FILE

    @property
    def probe_error(self) -> Path:
        """Written where the probe failed while it was loaded: why, in one line."""
        return self.data / ERROR_FILE

    @property
    def lock(self) -> Path:
        """Held by the one engine of the run."""
        return self.data / "engine.lock"

    @property
    def engine_file(self) -> Path:
        """``engine.json``: which process the engine is, which may have another training process follow."""
        return self.data / "engine.json"

    @property
    def engine_log(self) -> Path:
        """What an engine had to say when something went wrong with itself."""
        return self.data / "engine.log"

    def claim_start(self) -> bool:
        """Whether it is ours to say if the training is started; said once, by the first who asks.

        The engine asks right before it starts it, and whoever waits for that, before giving up: so nothing starts
        behind the back of somebody who was told that it did not.
        """
        try:
            os.close(os.open(self.data / "start.claimed", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def facts(self) -> dict[str, Any]:
        """``run.json``, empty where it is missing or broken."""
        return read_json(self.facts_file)

    def point(self) -> None:
        """(Re)write the file beside the socket that names the data folder."""
        write_whole(self.pointer, os.fsencode(self.data))


def runs_folder(state_dir: Path | None, environ: Mapping[str, str]) -> Path:
    """The folder that holds all data folders: ``--state-dir``, else ``$XDG_STATE_HOME/cockpit``, else under home."""
    if state_dir is not None:
        return Path(os.path.abspath(state_dir)) / "runs"
    home = environ.get("XDG_STATE_HOME", "")
    # the specification says that a relative path is to be ignored
    top = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~")) / ".local" / "state"
    return top / "cockpit" / "runs"


def default_sockets() -> Path:
    """The socket folder of this user, not checked and not made."""
    return Path("/tmp") / f"cockpit-{os.getuid()}"


def safe_sockets(folder: Path | None = None) -> Path:
    """The socket folder, made where missing; raises StartError where others could reach or have made it."""
    folder = folder or default_sockets()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise StartError(f"cannot make {folder}, the folder for sockets: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise StartError(f"{folder} must be a folder, not a link or file: remove it and try again")
    if found.st_uid != os.getuid():
        raise StartError(f"{folder} belongs to user {found.st_uid}, not to you: cockpit will not put a socket there")
    if found.st_mode & 0o077:
        raise StartError(f"{folder} is open to other users: run chmod 700 {folder}")
    return folder


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def new_rundir(word: str, name: str | None, runs: Path, sockets: Path) -> RunDir:
    """Make the data folder of a new run, called ``name`` or after ``word`` (the script) with a short unique end."""
    if name is not None:
        if not name or _NOT_IN_NAMES.search(name) or name.startswith((".", "-")) or len(name) > 80:
            raise StartError(f"a run cannot be called {name!r}: use letters, digits, dot, dash and underscore")
        return RunDir(name, _make(runs / name), sockets)
    stem = _NOT_IN_NAMES.sub("-", Path(word).stem).strip("-.")[:40] or "run"
    for digits in (1, 1, 1, 2, 2, 4, 6):
        candidate = f"{stem}-{secrets.token_hex(digits)}"
        if not (runs / candidate).exists():
            return RunDir(candidate, _make(runs / candidate), sockets)
    raise StartError(f"no free name for a run is left in {runs}")


def _make(data: Path) -> Path:
    try:
        data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.mkdir(mode=0o700)
    except FileExistsError as error:
        raise StartError(f"a run named {data.name} is already there ({data}): choose another --name") from error
    except OSError as error:
        raise StartError(f"cannot make {data}: {error.strerror}") from error
    return data.resolve()


def rundir_at(data: Path, sockets: Path | None = None) -> RunDir:
    """The run whose data folder this is; nothing is checked."""
    data = Path(os.path.realpath(data))
    return RunDir(data.name, data, sockets or default_sockets())


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one step, readable by this user only."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(new, path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """``value`` and the schema number as a small JSON file."""
    write_whole(path, json.dumps({"schema": SCHEMA, **value}, indent=1).encode())


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``, empty where it is missing, torn or something else."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

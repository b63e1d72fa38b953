"""What ``doctor`` looks at: everything a run depends on outside itself, gathered once. Judged by ``checks``.

Changes nothing and starts two short processes: the user's Python, asked for its torch, and the GPU's reader. Whatever
does not answer in time is None or a sentence; it must never raise.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.engine import launch
from cockpit.engine.rundir import default_sockets, runs_folder, safe_sockets
from cockpit.model.errors import StartError
from cockpit.sensors import torch_facts
from cockpit.sensors.gpu.figures import GpuReading
from cockpit.sensors.gpu.reader import read_once
from cockpit.sensors.limits import CpuLimit, usable_cpus

TORCH_S_AT_MOST = 60.0
GPU_S_AT_MOST = 10.0


@dataclass(frozen=True)
class Surroundings:
    """Facts only. ``torch`` is what ``torch_facts`` said in ``interpreter``; where it said nothing, ``torch_trouble``.

    ``compiler``, ``c_compiler``: what torch would build with; ``cache``: where it would keep what it has built.
    ``size``: columns and rows of the terminal.
    ``owners``: distributions that bring a package named ``cockpit`` to our own interpreter. Troubles are sentences.
    """

    python: str
    system: str
    release: str
    interpreter: str
    torch: Mapping[str, Any] | None
    torch_trouble: str | None
    limit: CpuLimit | None
    run_queue: bool
    shm_bytes: tuple[int, int] | None
    open_files: int | None
    gpu: GpuReading
    compiler: str | None
    c_compiler: str | None
    cache: Path
    cache_trouble: str | None
    runs: Path
    runs_trouble: str | None
    disk_free_bytes: int | None
    sockets: Path
    sockets_trouble: str | None
    owners: tuple[str, ...]
    tmux: str | None
    environ: Mapping[str, str]
    encoding: str
    stdin_tty: bool
    stderr_tty: bool
    size: tuple[int, int] | None


def gather(environ: Mapping[str, str], state_dir: Path | None) -> Surroundings:
    """Look at everything once; takes as long as an import of torch."""
    interpreter = launch.interpreter(environ)
    torch, torch_trouble = ask_torch(interpreter, environ)
    runs = runs_folder(state_dir, environ)
    runs_trouble, disk_free = look_at_folder(runs)
    uname, cache = platform.uname(), cache_folder(environ)
    return Surroundings(
        python=platform.python_version(),
        system=uname.system,
        release=uname.release,
        interpreter=interpreter,
        torch=torch,
        torch_trouble=torch_trouble,
        limit=usable_cpus(os.getpid()),
        run_queue=os.access("/proc/self/schedstat", os.R_OK),
        shm_bytes=size_and_free(Path("/dev/shm")),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        gpu=read_once(GPU_S_AT_MOST),
        compiler=shutil.which((environ.get("CXX") or "g++").split()[0]),
        c_compiler=next(
            (found for name in (environ.get("CC"), "gcc", "clang") if name and (found := shutil.which(name))), None
        ),
        cache=cache,
        cache_trouble=look_at_cache(cache),
        runs=runs,
        runs_trouble=runs_trouble,
        disk_free_bytes=disk_free,
        sockets=default_sockets(),
        sockets_trouble=look_at_sockets(default_sockets()),
        owners=tuple(torch_facts.owners("cockpit")),
        tmux=first_line(["tmux", "-V"]),
        environ=dict(environ),
        encoding=getattr(sys.stderr, "encoding", None) or "ascii",
        stdin_tty=sys.stdin is not None and sys.stdin.isatty(),
        stderr_tty=sys.stderr is not None and sys.stderr.isatty(),
        size=terminal_size(),
    )


def ask_torch(
    interpreter: str, environ: Mapping[str, str], timeout_s: float = TORCH_S_AT_MOST
) -> tuple[dict[str, Any] | None, str | None]:
    """What ``interpreter`` says of its torch, or why it says nothing."""
    try:
        done = subprocess.run(
            [interpreter, torch_facts.__file__],
            env=launch.bare_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"{interpreter} did not answer within {timeout_s:.0f} s"
    except OSError as error:
        return None, f"{interpreter} cannot be started: {(error.strerror or str(error)).lower()}"
    try:
        # packages greet people on stdout while they are imported: only our own line, the last one, counts
        return dict(json.loads(done.stdout.splitlines()[-1])), None
    except (IndexError, ValueError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return None, f"{interpreter} ended with status {done.returncode}" + "".join(f": {line}" for line in last)


def size_and_free(folder: Path) -> tuple[int, int] | None:
    """Bytes in all and free of the file system that holds ``folder``; None where there is none."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def look_at_folder(folder: Path) -> tuple[str | None, int | None]:
    """Why runs cannot be kept in ``folder`` (None: they can), and the bytes free there. Makes nothing."""
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    sizes = size_and_free(nearest)
    free = sizes[1] if sizes else None
    if not nearest.is_dir():
        return f"{nearest} is not a folder", free
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{nearest} cannot be written to", free
    return None, free


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where torch's compiler keeps what it has built."""
    return Path(environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir())


def look_at_cache(folder: Path) -> str | None:
    """Why what is built cannot be kept in ``folder`` and loaded from it; None: it can."""
    trouble, _ = look_at_folder(folder)
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    if trouble is None and os.statvfs(nearest).f_flag & os.ST_NOEXEC:
        return f"{nearest} is mounted noexec: what is built there cannot be loaded"
    return trouble


def terminal_size() -> tuple[int, int] | None:
    """Columns and rows; None where stderr is no terminal."""
    try:
        columns, rows = os.get_terminal_size(2)
    except OSError:
        return None
    return (columns, rows) if columns and rows else None


def look_at_sockets(folder: Path) -> str | None:
    """Why the engine's socket cannot be kept in ``folder``; None: it can."""
    if not os.path.lexists(folder):
        return None if os.access(folder.parent, os.W_OK | os.X_OK) else f"{folder.parent} cannot be written to"
    try:
        safe_sockets(folder)
    except StartError as error:
        return str(error)
    return None


def first_line(words: list[str]) -> str | None:
    """What a program prints first; None where it is not there or does not answer."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=5.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(done.stdout.decode(errors="replace").splitlines()), None)

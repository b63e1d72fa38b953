"""What to start for ``cockpit run …``: argument vector and environment, from the user's command. Called by ``start``.

Pure but for looking whether files are there. It must never change what the command means: the only additions are
four variables and one folder in front of ``PYTHONPATH``.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from cockpit.model.errors import StartError, UsageError
from cockpit.model.names import ENV_LIFE, ENV_PACKAGE, ENV_RUN, ENV_SOCKET, ENV_WARM, ENV_WAS

PACKAGE = Path(__file__).resolve().parent.parent
INJECT = PACKAGE / "probe" / "inject"

NOT_FOUND, CANNOT_RUN = 127, 126


def command_for(
    words: Sequence[str], is_script: bool, environ: Mapping[str, str], cwd: Path
) -> tuple[tuple[str, ...], str]:
    """(argv, script): a script gets an interpreter in front, a command is looked up. Raises StartError 126, 127."""
    if not words:
        raise UsageError("nothing to run: name a script, or write -- and a command", StartError.code)
    if is_script:
        _check_script(words[0], cwd)
        return (interpreter(environ), *words), words[0]
    return (find_command(words[0], environ, cwd), *words[1:]), _script_among(words)


def interpreter(environ: Mapping[str, str]) -> str:
    """The user's Python: that of the active environment, else the one that runs cockpit."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = environ.get(name)
        if folder and os.access(candidate := os.path.join(folder, "bin", "python"), os.X_OK):
            return candidate
    return sys.executable


def _check_script(script: str, cwd: Path) -> None:
    path = cwd / script
    if not path.exists():
        raise StartError(f"{script}: no such file in {cwd}; to run a command, write it after --", NOT_FOUND)
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise StartError(f"{script} is a folder without __main__.py: name the script in it", CANNOT_RUN)
    if not os.access(path, os.R_OK):
        raise StartError(f"{script} cannot be read: check its permissions", CANNOT_RUN)


def find_command(word: str, environ: Mapping[str, str], cwd: Path) -> str:
    """Absolute path of the program, as a shell would find it. Raises StartError 126 or 127."""
    if os.sep in word:
        path = str(cwd / word)
        if not os.path.exists(path):
            raise StartError(f"{word}: no such file", NOT_FOUND)
        if os.path.isdir(path):
            raise StartError(f"{word} is a folder, not a program", CANNOT_RUN)
        if not os.access(path, os.X_OK):
            raise StartError(f"{word} is not executable: chmod +x it, or name its interpreter", CANNOT_RUN)
        return path
    found = shutil.which(word, path=environ.get("PATH", os.defpath))
    if found is None:
        raise StartError(f"{word}: command not found", NOT_FOUND)
    return os.path.join(cwd, found)


def _script_among(words: Sequence[str]) -> str:
    """What names the training: the first ``.py`` file, else what stands after ``-m``, else the program."""
    for word in words:
        if word.endswith(".py"):
            return word
    for flag, word in pairwise(words):
        if flag == "-m":
            return word.rpartition(".")[2] if word.rpartition(".")[2] != "__main__" else word
    return os.path.basename(words[0])


def with_variables(environ: Mapping[str, str], variables: Mapping[str, str | None]) -> dict[str, str]:
    """The environment with those set; None takes one away."""
    kept = {name: value for name, value in environ.items() if name not in variables}
    return kept | {name: value for name, value in variables.items() if value is not None}


def for_a_first_life(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what marks a later life: a run may be started from within one of another run."""
    marks = (ENV_LIFE, ENV_WARM)
    return {name: value for name, value in environ.items() if name not in marks and not name.startswith(ENV_WAS)}


def environment(environ: Mapping[str, str], data: Path, socket: Path) -> dict[str, str]:
    """The training's environment: the caller's own, and what the probe needs to find us."""
    env = dict(environ)
    folders = [str(INJECT)] + ([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])
    return env | {
        ENV_RUN: str(data),
        ENV_SOCKET: str(socket),
        ENV_PACKAGE: str(PACKAGE),
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONUNBUFFERED": "1",
    }


def bare_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For our own processes: without any run's mark, or stopping an outer run would stop this one's engine."""
    return {name: value for name, value in environ.items() if name not in (ENV_RUN, ENV_SOCKET, ENV_PACKAGE, ENV_LIFE)}

"""Trainings in real processes of their own, without the seconds that each import of torch takes.

``Forks`` starts one process that has imported torch and nothing else; each run is a fork of it, into which the injected
sitecustomize loads the probe as it does where torch is there already. Nothing may train in the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """``status``: as a shell says it, 128 + n for signal n."""

    status: int
    text: str

    @property
    def told(self) -> list[str]:
        """What cockpit said in the training's own output."""
        return [line for line in self.text.splitlines() if line.startswith("cockpit: ")]

    @property
    def own(self) -> list[str]:
        """What the training said."""
        return [line for line in self.text.splitlines() if not line.startswith("cockpit: ")]


class Forks:
    """The process that forks. ``run`` is one training, ``run_dir`` makes it one under cockpit."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._scratch, self._count = scratch, 0
        inject, trainers = root / "cockpit" / "probe" / "inject", root / "tests" / "trainers"
        env = {k: v for k, v in os.environ.items() if not k.startswith("COCKPIT")}
        env["PYTHONPATH"] = os.pathsep.join(map(str, (inject, root, trainers)))
        env.update(COCKPIT_PACKAGE=str(root / "cockpit"), OMP_NUM_THREADS="1")
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, script: Path, *args: object, run_dir: Path | None = None, life: int | str | None = None,
        kill: tuple[str, float] | None = None, **env: str,
    ) -> Ran:  # fmt: skip
        """``life``: of the run, from 2 on. ``kill``: kill -9 so many seconds after this file is there."""
        self._count += 1
        out = self._scratch / f"out-{self._count}"
        if run_dir is not None:
            env.update(COCKPIT_RUN=str(run_dir), COCKPIT_SOCKET=str(run_dir / "s"))
        if run_dir is not None and life is not None:
            env["COCKPIT_LIFE"] = str(_prepared(run_dir, life))
        wish = {"script": str(script), "args": [str(a) for a in args], "out": str(out), "env": env, "kill": kill}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        return Ran(int(self._process.stdout.readline()), out.read_text())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def _prepared(run_dir: Path, life: int | str) -> Path:
    """The folder of a life; as an engine does it, what a process is told at its start goes along."""
    folder = run_dir / f"life-{life}"
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "start.json"
    if not told.exists() and (run_dir / "start.json").exists():
        told.write_bytes((run_dir / "start.json").read_bytes())
    return folder


def _become(wish: dict[str, Any]) -> int:
    """In the fork: the script, as ``__main__``, from its first line to its last ending."""
    output = os.open(wish["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(wish["env"])
    sys.argv = [wish["script"], *wish["args"]]
    if "COCKPIT_RUN" in wish["env"]:
        sys.modules["sitecustomize"]._load(sys.modules["torch"])  # type: ignore[attr-defined]
    main = types.ModuleType("__main__")
    main.__file__ = wish["script"]
    sys.modules["__main__"] = main
    code = compile(Path(wish["script"]).read_text(), wish["script"], "exec")
    try:
        exec(code, main.__dict__)
        status = 0
    except SystemExit as error:
        _ended.append(error)  # as Python itself, which lets go of it when nothing of the script is left
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    return status


_ended: list[BaseException] = []


def _serve() -> None:
    import torch  # noqa: F401

    replies = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        wish = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os._exit(_become(wish))
        status = _killed(pid, *wish["kill"]) if wish["kill"] else os.waitpid(pid, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        print(128 - code if code < 0 else code, file=replies, flush=True)


def _killed(pid: int, path: str, after_s: float) -> int:
    """Its status; killed at that moment, if it is not over by then."""
    while not os.path.exists(path):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001)
    time.sleep(after_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


if __name__ == "__main__":
    _serve()

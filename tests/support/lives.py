"""A life of a run without an engine: the keeper, the waiting process and the old one, all real. Called by tests."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cockpit.engine.keeper import started
from cockpit.engine.launch import environment
from cockpit.engine.main import KEEPER
from cockpit.model.names import ENV_LIFE, ENV_WARM
from cockpit.probe import lives

from .bare import clean_env
from .outcome import REPO
from .waiting import wait_for

PLANNED = ("cold", "leave_s", "found", "first", "asked")
"""What a test may put into the plan of a life."""


class Life:
    """Life 2 of a run in ``data``, for which ``old`` makes way (a process that only sleeps)."""

    def __init__(self, data: Path, argv: Sequence[str], env: Mapping[str, str] | None = None, **more: Any) -> None:
        self.data, self.folder = data, data / "life-2"
        self.folder.mkdir()
        self.old = subprocess.Popen(["sleep", "600"])
        who = {"pid": self.old.pid, "started_ticks": started(self.old.pid)}
        plain = environment(clean_env(env), data, data / "no.sock") | {ENV_LIFE: str(self.folder)}
        output = str(data / "output.log")
        plan = {"old": who, "output": output, **{key: more.pop(key) for key in PLANNED if key in more}}
        (self.folder / lives.PLAN).write_text(json.dumps(plan))
        whole = {"argv": list(argv), "env": plain | {ENV_WARM: str(self.folder)}, "cwd": str(more.pop("cwd", REPO))}
        if (back := more.pop("back", None)) is not None:
            was = {name: value for name, value in {**plain, **back}.items() if value is not None}
            whole["back"] = {"argv": whole["argv"], "cwd": whole["cwd"], "env": was}
        assert not more
        self.keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        assert self.keeper.stdin is not None
        with self.keeper.stdin as stdin:
            stdin.write(
                json.dumps({**whole, "old": who, "output": output, "log": str(self.folder / lives.LOG)}).encode()
            )

    def ready(self, seconds: float = 240.0) -> dict[str, Any]:
        """What the waiting process says of itself once torch is imported."""
        return self.until(lambda: lives.read(str(self.folder), lives.READY), seconds)

    def until(self, check: Callable[[], Any], seconds: float = 240.0) -> Any:
        """The first true value of ``check``."""
        return wait_for(check, lambda: f"{self.output}; {self.words}", seconds, 0.01)

    def go(self, **more: Any) -> bool:
        """As the old process does it once its hand-off is written."""
        return lives.claim_go(str(self.folder), {"handoff": "none", "epoch": 1, "step": 4, **more})

    def leave(self) -> None:
        """The old process ends."""
        self.old.kill()
        self.old.wait()

    def ended(self, seconds: float = 280.0) -> int:
        """The exit status as the keeper wrote it."""
        assert self.keeper.wait(seconds) == 0
        return int((self.folder / lives.EXIT).read_text().split()[0])

    def pids(self) -> dict[str, Any]:
        return lives.read(str(self.folder), lives.PIDS)

    @property
    def output(self) -> str:
        path = self.data / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def words(self) -> str:
        """What the imports of the waiting process printed."""
        path = self.folder / lives.LOG
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.old.kill()
        self.old.wait()
        pid = self.pids().get("training")
        with contextlib.suppress(ProcessLookupError):
            if pid and self.keeper.poll() is None:
                os.kill(pid, 9)
        self.keeper.kill()
        self.keeper.wait()

"""``cockpit run``: start somebody's training and show it, on a screen or as plain lines.

The screen is only a client: leaving it, or losing it, changes nothing for the training.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cockpit.config.setup import Machine, differences
from cockpit.engine.launch import interpreter
from cockpit.engine.start import start_run
from cockpit.model.errors import UsageError
from cockpit.sensors.limits import usable_cpus

from . import headless
from .launch_words import OPTIONS, Plan, plan_of
from .outcome import exit_status_of, last_output, three_lines
from .passed_on import passed_on
from .runs import Run, revive_to_show, state_of
from .screen_words import Look, look_of
from .verbs import Verb
from .words import Words

__all__ = ["OPTIONS", "call"]

WINDOW = (24, 80)


def call(verb: Verb, words: Words) -> int:
    """Start it and stay with it; the training's exit status, 0 after detaching."""
    del verb
    if not words.rest:
        raise UsageError("run needs a script or, after --, a command: cockpit run train.py")
    return start(words, words.rest, command=words.command)


def start(words: Words, argv: Sequence[str], *, command: bool) -> int:
    """Start ``argv`` as ``words`` say. ``command``: it is a whole command line, not a script's."""
    plan, look = plan_of(words, argv, command=command), look_of(words)
    for note in (*plan.notes, *_differences(plan)):
        print(f"cockpit: {note}", file=sys.stderr)
    plain = words.has("--headless") or words.has("--json") or not has_terminal()
    if not (plain or words.has("--detach")):
        # the screen's library takes as long to import as the training takes to start: side by side
        threading.Thread(target=importlib.import_module, args=("cockpit.tui.app",), daemon=True).start()
    run = start_run(replace(plan.spec, window=input_window()))
    if words.has("--detach"):
        return _detach(run, as_json=words.has("--json"))
    with passed_on(run):
        if plain:
            if not words.has("--quiet"):
                print(f"cockpit: {run.name} started; its output: {run.output}", file=sys.stderr)
            return headless.watch(run, quiet=words.has("--quiet"), as_json=words.has("--json"))
        return show(run, look)


def has_terminal() -> bool:
    """Whether a screen can be drawn: a terminal to read from and one to draw on, that is not dumb, and is ours now."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    try:
        # started with & the shell would stop us at the first key we wait for
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def input_window() -> tuple[int, int] | None:
    """Rows and columns of the terminal that the training reads from; None: started by hand it would have none either.

    Always the same ones: what a training prints must not depend on who was looking when it began.
    """
    return WINDOW if os.isatty(0) else None


def show(run: Run, look: Look) -> int:
    """The screen, then three lines; the exit status of a training that ended, 0 where it goes on."""
    # textual is imported here and nowhere else: shell verbs must start at once
    from cockpit.tui.app import run_screen

    def bring_back() -> None:
        revive_to_show(run)

    how = run_screen(run.socket, run.data, glyphs=look.glyphs, readonly=look.readonly, revive=bring_back)
    state = state_of(run)
    status = exit_status_of(state) if how == "ended" else 0
    lines = [f"  | {line}" for line in last_output(run.output)] if status else []
    print("\n".join([*lines, *three_lines(state)]), file=sys.stderr)
    return status


def _detach(run: Run, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"run": run.name, "data_dir": str(run.data), "socket": str(run.socket)}))
    else:
        print(run.name)
        print(f"cockpit: started; cockpit attach {run.name}", file=sys.stderr)
    return 0


def _differences(plan: Plan) -> list[str]:
    if plan.saved is None:
        return []
    limit = usable_cpus(os.getpid())
    # no device node: surely no NVIDIA GPU; with one, the training itself will tell which
    gpu = None if Path("/dev/nvidiactl").exists() else ""
    python = interpreter(os.environ) if plan.spec.is_script else plan.spec.words[0]
    taken = [name for name, text in plan.spec.variables.items() if os.environ.get(name, text) != text]
    notes = [f"{', '.join(taken)}: as the setup has it, not as this shell"] if taken else []
    return notes + differences(plan.saved, Machine(limit.cpus if limit else None, gpu, torch_beside(Path(python))))


def torch_beside(python: Path) -> str | None:
    """The torch that this interpreter of a virtual environment would import, read from its files; None: not known."""
    for file in sorted(python.parent.parent.glob("lib/python3*/site-packages/torch/version.py")):
        with suppress(OSError):
            found = re.search(r"^__version__ = '([^']+)'", file.read_text(encoding="utf-8", errors="replace"), re.M)
            if found:
                return found[1]
    return None

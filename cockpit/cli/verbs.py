"""The table of verbs: what each is called, which file does it, what it is for. Read by main and by help.

Nothing here imports a verb's file: that happens when it is called, so that a shell verb starts at once.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from cockpit.model.errors import UsageError


@dataclass(frozen=True)
class Verb:
    """``module`` is the file in ``cockpit.cli``. ``starts``: it starts a training, so its failures are 125 to 127."""

    name: str
    words: str
    help: str
    module: str
    starts: bool = False


VERBS: tuple[Verb, ...] = (
    Verb("run", "[options] SCRIPT [args…] | -- COMMAND…", "start a training and show it", "run", starts=True),
    Verb("attach", "[RUN]", "show a training again; status 0, however it ends", "attach"),
    Verb("ls", "", "the runs on this machine", "ls"),
    Verb("status", "[RUN]", "what a run is doing, once", "status"),
    Verb("set", "[RUN] KNOB=VALUE…", "ask for a change, at the next epoch boundary or --now", "set"),
    Verb("drop", "[RUN]", "withdraw the change that is still queued", "ask"),
    Verb("undo", "[RUN]", "take the newest change back", "ask"),
    Verb("redo", "[RUN]", "apply again what was undone", "ask"),
    Verb("baseline", "[RUN]", "call what runs now the baseline", "ask"),
    Verb("pause", "[RUN]", "pause after the step under way; memory and workers stay", "pause"),
    Verb("resume", "[RUN]", "a paused training goes on", "pause"),
    Verb("restart", "[RUN] --env NAME=VALUE…", "go on in a new process with this environment", "restart"),
    Verb("dump", "[RUN]", "where its threads and workers stand just now, without stopping them", "dump"),
    Verb("stop", "[RUN]", "soft stop: the training may save, then everything of the run ends", "stop"),
    Verb("logs", "[RUN]", "the training's own output", "logs"),
    Verb("save", "[RUN]", "write the tuned setup to cockpit.toml", "save"),
    Verb("export", "FILE --to python|env", "the saved setup as lines to paste into the script", "export"),
    Verb("report", "[RUN]", "what was tried, what it gave, what held it back", "report"),
    Verb("demo", "[options]", "a training to try it on, with real images", "demo", starts=True),
    Verb("doctor", "", "what this machine can and cannot show, and why", "doctor"),
    Verb("help", "[VERB]", "this page, or the options of one verb", "help"),
)

BY_NAME = {verb.name: verb for verb in VERBS}


def verb_named(name: str) -> Verb:
    """The verb called ``name``; raises UsageError with the nearest one."""
    if name in BY_NAME:
        return BY_NAME[name]
    if name.endswith(".py"):
        raise UsageError(f"unknown verb {name!r}: to start a training, say: cockpit run {name}")
    near = difflib.get_close_matches(name, list(BY_NAME), n=1)
    raise UsageError(f"unknown verb {name!r}: " + (f"did you mean {near[0]!r}?" if near else "see cockpit help"))

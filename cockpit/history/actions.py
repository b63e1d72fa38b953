"""The table of actions: the key, the verb and the words for everything a person can do on the screen.

Read by the footer, the help screen, the command line and the README's test, so that each is spelt once.
It holds no code: the screen finds its handler by ``name``, the command line its verb by ``verb``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """One row. ``keys`` as Textual names them, ``shown`` as people read them, ``verb`` of the command line (or None
    where it only moves something on the screen). ``footer`` is the word beside the key; empty: not in the footer.

    ``acts``: it asks something of the run, so it is refused under ``--readonly``.
    """

    name: str
    keys: tuple[str, ...]
    shown: str
    help: str
    group: str
    verb: str | None = None
    footer: str = ""
    acts: bool = False


SETTINGS, RUN, OUTPUT, SCREEN = "settings", "the run", "its output", "the screen"

ACTIONS: tuple[Action, ...] = (
    Action("up", ("up", "k"), "↑ k", "choose a setting", SETTINGS),
    Action("down", ("down", "j"), "↓ j", "choose a setting", SETTINGS),
    Action("jump", ("1", "2", "3", "4", "5", "6", "7", "8", "9", "0"), "1–9", "choose a setting", SETTINGS),
    Action("less", ("left", "minus"), "← -", "one less, one more; queued at once", SETTINGS, "set", acts=True),
    Action(
        "more",
        ("right", "plus", "equals_sign"),
        "→ +",
        "one less, one more; queued at once",
        SETTINGS,
        "set",
        "change",
        True,
    ),
    Action("flip", ("space",), "space", "flip a switch, queued at once", SETTINGS, "set", acts=True),
    Action("about", ("enter",), "enter", "all about this setting, and why not", SETTINGS),
    Action(
        "apply",
        ("a",),
        "a",
        "apply the queue now, within the epoch",
        RUN,
        "set",
        "apply now",
        True,
    ),
    Action("undo", ("u",), "u", "drop the queue, or undo the last change", RUN, "undo", "undo", True),
    Action("redo", ("U", "upper_u"), "U", "apply again what was undone", RUN, "redo", acts=True),
    Action("pause", ("p",), "p", "pause after this step; go on", RUN, "pause", "pause", True),
    Action("restart", ("r",), "r", "go on in a new process: its environment", RUN, "restart", acts=True),
    Action("baseline", ("b",), "b", "call what runs now the baseline", RUN, "baseline", "baseline", True),
    Action("save", ("s",), "s", "save the setup to a file; copy it as code", RUN, "save", "save"),
    Action("paste", ("y",), "y", "save the setup to a file; copy it as code", RUN),
    Action("dump", ("D", "upper_d"), "D", "where its threads and workers stand just now", RUN, "dump"),
    Action("find", ("slash",), "/", "find in the output; the next, the one before", OUTPUT, "logs", "find"),
    Action("next", ("n",), "n", "find in the output; the next, the one before", OUTPUT),
    Action("previous", ("N", "upper_n"), "N", "find in the output; the next, the one before", OUTPUT),
    Action("output", ("v",), "v", "all trials, then the output, and back", OUTPUT, "logs"),
    Action("follow", ("f",), "f", "follow the newest line; page up, page down", OUTPUT, "logs"),
    Action("page_up", ("pageup",), "pgup", "follow the newest line; page up, page down", OUTPUT),
    Action("page_down", ("pagedown",), "pgdn", "follow the newest line; page up, page down", OUTPUT),
    Action("span", ("z",), "z", "time in the charts; dark or light; characters", SCREEN),
    Action("theme", ("t",), "t", "time in the charts; dark or light; characters", SCREEN),
    Action("glyphs", ("G", "upper_g"), "G", "time in the charts; dark or light; characters", SCREEN),
    Action("help", ("question_mark",), "?", "this page", SCREEN, "help", "help"),
    Action(
        "leave",
        ("q", "ctrl+c"),
        "q",
        "leave: detach, stop or stay; ctrl+c twice detaches",
        SCREEN,
        None,
        "leave",
    ),
    Action("detach", ("d",), "q d", "leave, the training goes on", SCREEN, "attach"),
    Action("stop", ("s",), "q s", "stop softly: the training may save first", SCREEN, "stop", acts=True),
    Action("close", ("escape",), "esc", "close what is open; to the shell, fg returns", SCREEN),
    Action("suspend", ("ctrl+z",), "ctrl+z", "close what is open; to the shell, fg returns", SCREEN),
)

IN_LEAVE = ("detach", "stop")
"""Actions whose key counts only once ``leave`` has been pressed."""

BY_NAME: Mapping[str, Action] = {action.name: action for action in ACTIONS}
BY_KEY: Mapping[str, Action] = {key: action for action in ACTIONS if action.name not in IN_LEAVE for key in action.keys}

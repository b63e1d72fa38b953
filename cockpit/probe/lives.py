"""The files by which one process of a run makes way for the next: who is current, who has given up, who has stepped.

Each life after the first has a folder, RUN/life-N. Its ``go`` is made once, in one step, by whoever comes first: the
old process (its hand-off is written and checked) or whoever gives the new life up. Used by the probe, the warm process
and the engine; the keeper, which imports nothing, spells the names itself.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

GO, READY, STEPPED, STOP, PLAN, PIDS, EXIT = (
    "go", "ready.json", "stepped", "stop", "plan.json", "pids.json", "exit_status"
)  # fmt: skip
LOG = "warm.log"
"""What the new process prints before its turn: shown when its script begins, not amid the old process's lines."""
TRAINED = "trained."
"""Before the pid of each process that has made a step."""
HANDOFF = "handoff"
"""The key in ``go`` without which it says that this life was given up."""
BY_SCRIPT = "by_script"
"""The key in such a ``go`` of a new process whose script could not begin: why stands beside it."""


def folders(run: str) -> Iterator[tuple[int, str]]:
    """(number, folder) of every life after the first that was ever prepared, oldest first."""
    for number in itertools.count(2):
        folder = os.path.join(run, "life-%d" % number)
        if not os.path.isdir(folder):
            return
        yield number, folder


def current(run: str) -> str:
    """The folder of the life that counts: the newest that was handed to, else the run's own."""
    found = run
    for _, folder in folders(run):
        if HANDOFF in read(folder, GO):
            found = folder
    return found


def claim_go(life: str, content: Mapping[str, Any]) -> bool:
    """Make the ``go`` of a life; False where there is one already, and whoever made it has decided.

    Raises OSError where it cannot be written: then nobody follows.
    """
    return not has(life, EXIT) and link(life, GO, {**content, "at_s": time.time()})


def give_up(life: str, reason: str) -> bool:
    """See to it that nobody hands over to this life any more; False where that has happened already."""
    return claim_go(life, {"refused": reason})


def link(folder: str, name: str, content: Mapping[str, Any]) -> bool:
    """Make a small JSON file whole and in one step, never in the place of another. Raises OSError."""
    new = os.path.join(folder, ".%s.%d" % (name, os.getpid()))
    with open(new, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(new, os.path.join(folder, name))
    except FileExistsError:
        return False
    finally:
        os.unlink(new)
    return True


def put(folder: str, name: str, content: Mapping[str, Any]) -> None:
    """Make a small JSON file whole, in the place of the one before. Raises OSError."""
    path = os.path.join(folder, name)
    new = "%s.%d" % (path, os.getpid())
    with open(new, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(new, path)


def read(folder: str, name: str) -> dict[str, Any]:
    """A small JSON file; empty where there is none, or no such thing."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def mark(folder: str, name: str) -> None:
    """Leave an empty file; a folder that is gone or full is no reason to fail."""
    with contextlib.suppress(OSError), open(os.path.join(folder, name), "x"):
        pass


def has(folder: str, name: str) -> bool:
    """Whether the file is there."""
    return os.path.exists(os.path.join(folder, name))


def note_training(folder: str) -> None:
    """Leave word that this process trains: whoever comes later must know it while it lives, heard of or not."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            began = int(file.read().rpartition(")")[2].split()[19])
        with open(os.path.join(folder, TRAINED + str(os.getpid())), "w") as file:
            file.write(str(began))


def trained(folder: str) -> Iterator[tuple[int, int]]:
    """(pid, when it began in clock ticks since boot) of every process that has made a step in this life."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith(TRAINED)]
    for name in names:
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
            yield int(name[len(TRAINED) :]), int(file.read())

"""A command line cut into options and the words that are left, by a table of options.

Used by every verb. Our own, not argparse: everything after SCRIPT belongs to the script, ``--at`` takes two
words, and an error must be one sentence with an exit code that the caller chooses.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from cockpit.model.errors import UsageError


@dataclass(frozen=True)
class Option:
    """``takes`` names the words that follow it (none for a switch); ``many``: may be given more than once."""

    name: str
    help: str
    takes: tuple[str, ...] = ()
    many: bool = False
    short: str | None = None


@dataclass
class Words:
    """What was found: ``given`` by option name, ``rest`` in order; ``command``: whether ``--`` came before it."""

    given: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    command: bool = False

    def has(self, name: str) -> bool:
        """Whether the switch was given."""
        return name in self.given

    def one(self, name: str) -> str | None:
        """The word that followed the option, None where it was not given."""
        return self.given[name][0][0] if name in self.given else None

    def all(self, name: str) -> list[tuple[str, ...]]:
        """The words of every time it was given, in order."""
        return self.given.get(name, [])


def split(words: Sequence[str], options: Sequence[Option], *, script: bool = False) -> Words:
    """Cut ``words``; raises UsageError for an option that is unknown, given twice, or short of its words.

    ``script``: the first word that is no option, and everything after it, is somebody else's command line.
    """
    known = {name: option for option in options for name in (option.name, option.short) if name}
    found = Words()
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.command = True
            found.rest += left
            break
        if not word.startswith("-") or word == "-":
            found.rest.append(word)
            if script:
                found.rest += left
                break
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if script and name not in known and not word.startswith("--"):
            raise UsageError(f"unknown option {name}: a module or another command is written after --")
        _take(found, known, name, [value] if equals else [], left)
    return found


def _take(found: Words, known: dict[str, Option], name: str, values: list[str], left: list[str]) -> None:
    option = known.get(name)
    if option is None:
        near = difflib.get_close_matches(name, list(known), n=1)
        raise UsageError(f"unknown option {name}" + (f": did you mean {near[0]}?" if near else ""))
    if values and not option.takes:
        raise UsageError(f"{name} takes no value")
    while len(values) < len(option.takes):
        if not left or left[0] == "--":
            raise UsageError(f"{name} needs {' '.join(option.takes)}")
        values.append(left.pop(0))
    if option.name in found.given and not option.many:
        raise UsageError(f"{option.name} was given twice")
    found.given.setdefault(option.name, []).append(tuple(values))


def seconds(text: str, option: str) -> float:
    """``text`` as a number of seconds from 0 upwards; raises UsageError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e9:
        raise UsageError(f"{option} takes seconds, from 0 upwards, not {text!r}")
    return value

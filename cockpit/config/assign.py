"""``KNOB=VALUE`` and ``LOADER:KNOB=VALUE`` as typed by people, and many of them sorted by loader.

Used by the command line and by ``cockpit.toml`` alike, so that both take the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cockpit.model.errors import UsageError
from cockpit.model.knobs import Value, knob_named, parse_value


@dataclass(frozen=True)
class Assignment:
    """One wish: ``loader`` (``train.py:52``) None means every training loader."""

    loader: str | None
    knob: str
    value: Value


@dataclass
class Wishes:
    """What is asked for: ``knobs`` for every training loader, ``loaders`` for single ones; ``environment``: variables
    of the training's process, None for one that is to be taken away."""

    knobs: dict[str, Value] = field(default_factory=dict)
    loaders: dict[str, dict[str, Value]] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)

    def add(self, wish: Assignment) -> None:
        """Take one more; the latest word on a knob wins."""
        target = self.knobs if wish.loader is None else self.loaders.setdefault(wish.loader, {})
        target[wish.knob] = wish.value


def address(name: str) -> tuple[str | None, str]:
    """``train.py:52:num_workers`` as (loader, knob); a bare knob has no loader. Raises UsageError."""
    loader, colon, knob = name.strip().rpartition(":")
    if colon and not loader:
        raise UsageError(f"{name!r} names no loader: write for example train.py:52:{knob or 'num_workers'}")
    return (loader or None), knob_named(knob).name


def is_of_no_loader(loader: str | None, knob: str) -> str | None:
    """Why ``knob`` cannot be asked of one loader; None where it can."""
    if loader is None or knob_named(knob).room != "kernel":
        return None
    return f"{knob} is a setting of the whole training and of no single loader: name it without {loader}"


def assignment(word: str) -> Assignment:
    """``word`` as typed; raises UsageError with what was expected."""
    name, equals, text = word.partition("=")
    if not equals:
        raise UsageError(f"{word!r} is no KNOB=VALUE, as for example num_workers=4")
    loader, knob = address(name)
    wrong = is_of_no_loader(loader, knob)
    if wrong is not None:
        raise UsageError(wrong)
    return Assignment(loader, knob, parse_value(knob, text))


def wishes(words: Iterable[str]) -> Wishes:
    """Many words together; raises UsageError for the first that is wrong."""
    found = Wishes()
    for word in words:
        found.add(assignment(word))
    return found

"""The options of ``run`` (and ``demo``) into a plan: what to start, with which setup, seen how.

Checks everything that can be checked before a process is started: a wrong word costs nothing then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cockpit.config.assign import Wishes, assignment
from cockpit.config.setup import SavedSetup, read_setup
from cockpit.engine.start import GRACE_S, Scheduled, Spec
from cockpit.model.errors import UsageError
from cockpit.model.knobs import Value

from .runs import STATE_DIR, state_dir
from .screen_words import SCREEN_OPTIONS
from .words import Option, Words, seconds

OPTIONS: tuple[Option, ...] = (
    Option("--config", "start with the setup saved in FILE", ("FILE",)),
    Option(
        "--set",
        "start with this value (repeatable); LOADER:KNOB names one loader",
        ("KNOB=VALUE",),
        many=True,
    ),
    Option("--at", "change at epoch:N, step:N or time:SECONDS (repeatable)", ("WHEN", "KNOB=VALUE"), many=True),
    Option("--name", "what the run is called", ("NAME",)),
    Option("--on-crash", "after a crash, try again: after 5, 30 and 120 s", ("restart",)),
    Option("--handoff-every", "a hand-off every N epochs (cockpit.session); --on-crash: for 3 % of the time", ("N",)),
    Option("--resume-with", 'how the script itself resumes, as in "--resume {checkpoint}"', ("ARGS",)),
    Option("--checkpoints", "where its checkpoints are, as in 'out/*.pt'", ("PATTERN",)),
    Option("--grace", "seconds the training has to end after a soft stop (default 30)", ("SECONDS",)),
    Option("--detach", "start it and return; its name is printed"),
    Option("--headless", "no screen: progress to stderr, the report to stdout"),
    Option("--json", "no screen: stdout holds the report as one JSON object"),
    Option("--quiet", "no progress lines"),
    *SCREEN_OPTIONS,
    STATE_DIR,
)


@dataclass(frozen=True)
class Plan:
    """``spec`` is what the engine's start takes; ``saved`` the file that a setup came from; ``notes`` sentences."""

    spec: Spec
    saved: SavedSetup | None = None
    notes: tuple[str, ...] = ()


def plan_of(words: Words, argv: Sequence[str], *, command: bool) -> Plan:
    """The plan to start ``argv``; raises UsageError or StartError for what is wrong with ``words``."""
    saved = read_setup(Path(file)) if (file := words.one("--config")) is not None else None
    wanted = saved.wishes if saved else Wishes()
    for (word,) in words.all("--set"):
        wanted.add(assignment(word))
    grace = words.one("--grace")
    spec = Spec(
        words=tuple(argv),
        is_script=not command,
        name=words.one("--name"),
        setup=wanted.knobs,
        loaders=wanted.loaders,
        variables=wanted.environment,
        at=schedule(words.all("--at")),
        grace_s=GRACE_S if grace is None else seconds(grace, "--grace"),
        on_crash=_on_crash(words.one("--on-crash")),
        handoff_every=_epochs(words.one("--handoff-every")),
        resume_with=words.one("--resume-with"),
        checkpoints=_pattern(words),
        state_dir=state_dir(words),
    )
    return Plan(spec, saved, saved.warnings if saved else ())


def _on_crash(word: str | None) -> bool:
    if word not in (None, "restart"):
        raise UsageError(f"--on-crash takes restart, not {word!r}")
    return word is not None


def _epochs(text: str | None) -> int | None:
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"--handoff-every takes a number of epochs, not {text!r}")
    return None if text is None else int(text)


def _pattern(words: Words) -> str | None:
    pattern = words.one("--checkpoints")
    if pattern is not None and words.one("--resume-with") is None:
        raise UsageError('--checkpoints needs --resume-with, as in --resume-with "--resume {checkpoint}"')
    return pattern


def schedule(pairs: list[tuple[str, ...]]) -> tuple[Scheduled, ...]:
    """``--at`` pairs as changes that wait; wishes for the same moment and loader are one change."""
    found: dict[tuple[str, float, str | None], dict[str, Value]] = {}
    for when, word in pairs:
        wish = assignment(word)
        found.setdefault((*moment(when), wish.loader), {})[wish.knob] = wish.value
    return tuple(Scheduled(kind, number, knobs, loader) for (kind, number, loader), knobs in found.items())


def moment(text: str) -> tuple[str, float]:
    """``epoch:3``, ``step:100``, ``time:2.5``; raises UsageError."""
    kind, _, number = text.partition(":")
    if kind in ("epoch", "step") and number.isascii() and number.isdigit() and len(number) < 16:
        return kind, int(number)
    if kind == "time" and number:
        return kind, seconds(number, "--at time:SECONDS")
    raise UsageError(f"--at cannot be {text!r}: epoch:N, step:N or time:SECONDS, counted from 0")

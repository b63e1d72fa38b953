"""What is known of a training that ends as it should not, and of what a new process could go on from: as events.

Made by the engine. ``None`` means not known and is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HANDOFF_SHARE = 0.03
"""Of the time: more than this, hand-offs that nobody asked for by number do not take, and others are warned of."""


@dataclass(frozen=True)
class SessionSeen:
    """The script has called ``cockpit.session``: with these ``names``, for ``epochs`` in all.

    ``every``: a hand-off at the end of every so many epochs, 0: only when asked. ``sparing``: but where it would take
    more than ``HANDOFF_SHARE`` of the time. ``reason``: why none can be written.
    """

    at_s: float
    names: tuple[str, ...] = ()
    epochs: int | None = None
    every: int = 0
    reason: str | None = None
    sparing: bool = False


@dataclass(frozen=True)
class HandoffSeen:
    """A hand-off was written at the end of ``epoch`` epochs, or could not be, for this ``reason``; ``seconds``: what
    that took. ``spared``: one was due then, and from here on they are left out until one is cheap enough."""

    at_s: float
    epoch: int | None = None
    step: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    reason: str | None = None
    spared: bool = False


@dataclass(frozen=True)
class IdentitySeen:
    """Under what name the training reports to a tracker: variables by which a later process goes on under it."""

    at_s: float
    env: Mapping[str, str]


@dataclass(frozen=True)
class Crashed:
    """The training's process has ended as it should not: ``cause``, at ``step``.

    ``base``: what a new process goes on from, in words, None where there is nothing; ``base_key`` tells it apart.
    ``lost_steps``, ``lost_s``: steps and seconds since then. ``settings``: under which it crashed, in one word.
    ``next_s``: when try ``number`` of ``of`` begins by itself, as ``change`` in the ledger; None: it does not, for
    this ``reason``. ``offered``: whether a person may ask for it. ``back``: changes that are taken back for it.
    """

    at_s: float
    exit_status: int | None
    cause: str
    step: int | None = None
    base: str | None = None
    base_key: str = ""
    lost_steps: int | None = None
    lost_s: float | None = None
    settings: str = ""
    number: int = 0
    of: int = 0
    next_s: float | None = None
    change: str | None = None
    reason: str | None = None
    offered: bool = False
    back: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resumed:
    """After an end or a crash another process begins. ``by_person``: somebody asked for it, so tries count anew.
    ``env``: what of the environment that was asked for is left once changes are taken back; None: all of it."""

    at_s: float
    change: str
    by_person: bool = False
    env: Mapping[str, str | None] | None = None

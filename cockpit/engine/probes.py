"""One connected process of a run, as the engine knows it. Made by ``hear``, read by ``ranks`` and ``together``.

Holds what the process has said of itself and nothing that is worked out from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.model.events import KnobReport, LoaderInfo, ProbeConnected

from .ticks import Ticks
from .told import Message

Send = Callable[[Message], None]


@dataclass(eq=False)
class Probe:
    """``send`` queues a message to it. ``announced``: the state knows of it.

    ``order`` says who came first. ``trains``: it has trained, or said that it does, since ``joined_s``; ``stepped_s``
    is when its last step was told. ``idle``: it has done its part while others go on. ``number``: its place among
    those that train, for who has no rank. ``session``: what the script handed to ``cockpit.session``. ``set_early``:
    environment variables that it sets before it imports torch; ``env``: those that a restart was asked for; ``found``:
    how it stood when torch was imported; ``argv``: its own words. ``own`` sums its figures up for the list of ranks;
    they are not the run's.
    """

    send: Send
    order: int
    greeting: ProbeConnected
    trains: bool = False
    announced: bool = False
    loaders: tuple[LoaderInfo, ...] = ()
    kernels: tuple[KnobReport, ...] = ()
    number: int | None = None
    joined_s: float = 0.0
    stepped_s: float = 0.0
    idle: bool = False
    step: int | None = None
    session: Mapping[str, Any] | None = None
    set_early: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    own: Ticks = field(default_factory=Ticks)
    wait_ms: float | None = None
    samples_per_s: float | None = None
    measured_s: float = 0.0
    step_s: float = 0.0

    @property
    def pid(self) -> int:
        """Its process."""
        return self.greeting.pid

    @property
    def rank(self) -> int:
        """Its number among the ranks."""
        return self.greeting.rank if self.greeting.rank is not None else self.number or 0

    @property
    def name(self) -> str:
        """As people say it."""
        return f"rank {self.rank}"

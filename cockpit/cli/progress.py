"""What a run without a screen says on stderr: calm lines at growing intervals, and one for each change.

Pure: states and a time in, lines out. The figures are the ones that the screen shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cockpit.history import compiled, crash, handoffs
from cockpit.history.activity import BADGES, activity_of, words_of
from cockpit.history.knobs import not_applied
from cockpit.history.measure import live_rate, recent_phases
from cockpit.history.pause import words as pause_words
from cockpit.history.ranks import gone, headline
from cockpit.history.report import delta_words, duration, rate_words
from cockpit.history.state import Entry, State
from cockpit.model.crash import Crashed
from cockpit.model.knobs import show_value
from cockpit.model.pause import REFUSED
from cockpit.model.ranks import RankInfo

CALM = ((30.0, 5.0), (300.0, 15.0), (float("inf"), 60.0))
"""Up to so many seconds after the start, a line every so many seconds."""
GONE_S = 5.0
MOVES = {"settling": "in force, measuring", "rolled_back": "rolled back"}
"""States of a change whose names say too little."""


class Progress:
    """Remembers what was said; ``said`` gives the lines that are due for a state."""

    def __init__(self, facts: Mapping[str, Any] = MappingProxyType({})) -> None:
        """``facts``: of the run, what it was started with."""
        self._facts = facts
        self._helpless: str | None = None
        self._due_s = 0.0
        self._entries: dict[str, str] = {}
        self._no_probe: str | None = None
        self._phase = ""
        self._not_applied: set[str] = set()
        self._paused = (0.0, "")
        self._gone: dict[int, float] = {}
        self._crashed: Crashed | None = None
        self._handoff_failed: str | None = None
        self._costly = self._spared = False

    def said(self, state: State, now_s: float) -> list[str]:
        """Lines due at ``now_s`` (seconds since the epoch, as the state's own times)."""
        began = state.started_s if state.started_s is not None else now_s
        lines = [line for entry in state.ledger if (line := self._change(entry))]
        if state.phase != self._phase:
            self._phase = state.phase
            if state.phase in ("stopping", "lost", "paused"):
                lines.append(state.phase)
        if (said := self._pause(state)) is not None:
            lines.append(said)
        lines += self._crash(state, now_s)
        for words, reason in not_applied(state).items():
            if words not in self._not_applied:
                self._not_applied.add(words)
                lines.append(f"{words}: not applied, {reason}")
        lines += [f"{rank.name} is gone, at step {show_value(rank.step)}" for rank in self._just_gone(state, now_s)]
        if state.probe == "waiting" and state.probe_reason not in (None, self._no_probe):
            self._no_probe = state.probe_reason
            lines.append(f"no probe: {state.probe_reason}")
        if now_s >= self._due_s and state.phase == "running":
            every = next(every for until, every in CALM if now_s - began < until)
            self._due_s = now_s + every
            lines.append(where(state, now_s))
        stamp = clock_words(now_s - began)
        return [f"[{stamp}] {line}" for line in lines]

    def _crash(self, state: State, now_s: float) -> list[str]:
        """That it crashed and is tried again, or why not; that a hand-off could not be written, while that is new."""
        found = []
        if state.crash is not None and state.crash != self._crashed:
            found.append(f"crashed: {crash.words(state, now_s)}")
        if state.handoff_failed is not None and state.handoff_failed != self._handoff_failed:
            found.append(f"no hand-off was written: {state.handoff_failed}")
        costly = handoffs.warning(state, now_s)
        if costly is not None and not self._costly:
            found.append(costly)
        if state.handoffs.spared and not self._spared:
            found.append(f"hand-offs are {handoffs.spared_words()}: a crash would lose what was trained since")
        self._costly, self._spared = self._costly or costly is not None, state.handoffs.spared
        helpless = crash.helpless(state, self._facts) if state.phase == "running" else self._helpless
        if helpless is not None and helpless != self._helpless:
            found.append(f"after a crash {helpless}")
        self._helpless = helpless
        self._crashed, self._handoff_failed = state.crash or self._crashed, state.handoff_failed
        return found

    def _pause(self, state: State) -> str | None:
        """That it goes on, after how long, and why if nobody said so; or why it was not paused."""
        before, self._paused = self._paused, (state.paused_s, pause_words(state) or "")
        if state.paused_s > before[0] and state.phase == "running":
            reason = state.pause.reason if state.pause is not None else None
            return f"goes on, paused for {duration(state.paused_s - before[0])}{': ' + reason if reason else ''}"
        refused = state.pause is not None and state.pause.state == REFUSED and state.phase == "running"
        return self._paused[1] if refused and self._paused[1] != before[1] else None

    def _just_gone(self, state: State, now_s: float) -> list[RankInfo]:
        """Ranks that are gone while others go on (at the end all go, one after the other): told once each."""
        alive = any(rank.alive for rank in state.team.ranks) if state.team else False
        seen = [(rank, self._gone.setdefault(rank.pid, now_s)) for rank in gone(state) if alive]
        found = [rank for rank, since_s in seen if now_s - since_s >= GONE_S]
        self._gone.update((rank.pid, float("inf")) for rank in found)
        return found

    def _change(self, entry: Entry) -> str | None:
        if self._entries.get(entry.id) == entry.state:
            return None
        self._entries[entry.id] = entry.state
        if entry.state == "applying":
            return None
        word = MOVES.get(entry.state, entry.state)
        parts = [f"{words_of(entry)}: {word}"]
        if entry.state == "kept":
            parts.append(delta_words(entry))
            parts.append(compiled.words(entry.compiled_s, entry.graphs, entry.recompiles))
        if entry.reason:
            parts.append(entry.reason)
        if entry.state == "rolled_back" and entry.stall_ms is not None:
            parts.append(f"stood still for {entry.stall_ms:.0f} ms")
        return ", ".join(part for part in parts if part)


def where(state: State, now_s: float) -> str:
    """One line of progress: epoch, step, rate, the loader's part of a step, the activity."""
    phases = recent_phases(state.current)
    if state.step is None:
        return "no step yet"
    parts = [f"epoch {show_value(state.epoch)} step {show_value(state.step)}"]
    if whose := headline(state):
        parts.append(whose)
    parts.append(f"{rate_words(live_rate(state))} samples/s")
    if phases is not None and phases.wait_ms is not None and phases.step_ms > 0:
        parts.append(f"waits for data {100 * (phases.wait_ms + phases.start_ms) / phases.step_ms:.0f} % of a step")
    activity = activity_of(state, now_s)
    badge = BADGES.get(activity.word)
    parts.append((badge.word if badge else activity.word).lower())
    return " · ".join(parts)


def clock_words(seconds: float) -> str:
    """``0:07``, ``12:40``, ``1:02:03``."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"

"""Small derived figures that several parts of the screen share: the step's phases now and before, ages.

Pure; None where there is nothing measured to derive from.
"""

from __future__ import annotations

import math

from cockpit.history.measure import recent_phases, windows_of
from cockpit.history.restart import is_between
from cockpit.history.state import Phases, State

from .view import View

NOISE_WINDOWS = 3
PROBE_SILENT_S = 2.0
"""A lost probe is shown as lost after so much silence."""
PROBE_EXPECTED_S = 15.0
"""So long without a word from the training, and the screen names the likely reasons."""


def phases_now(state: State) -> Phases | None:
    """Mean phases of a step over the newest blocks under the setup in force."""
    return recent_phases(state.current)


def phases_before(state: State) -> Phases | None:
    """The same under the setup that the last change ended; None before any change."""
    return recent_phases(state.previous) if state.previous else None


def noise_of(state: State) -> float | None:
    """The run's own noise under the setup in force: spread of its windows' rates as a share; None below three."""
    rates = [window.samples_per_s for window in windows_of(state.current, state.current.capacity)]
    logs = [math.log(rate) for rate in rates if rate is not None and rate > 0.0]
    if len(logs) < NOISE_WINDOWS:
        return None
    mean = sum(logs) / len(logs)
    return math.sqrt(sum((value - mean) ** 2 for value in logs) / (len(logs) - 1))


def probe_lost_for(view: View) -> float | None:
    """Seconds since the training was last heard, while its probe is lost; None while it is connected or awaited."""
    state = view.known
    if state.phase not in ("running", "paused", "stopping") or state.probe != "lost" or is_between(state):
        return None
    heard_s = state.latest.at_s if state.latest else state.probe_seen_s
    age_s = view.now_s - heard_s if heard_s is not None else PROBE_SILENT_S
    # a training that is just ending closes its connection a moment before it is gone
    return age_s if age_s >= PROBE_SILENT_S else None


def old(view: View) -> bool:
    """Whether the figures are no longer news: link or probe lost."""
    return view.link_lost_s is not None or probe_lost_for(view) is not None

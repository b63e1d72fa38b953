"""The state as the setup that is worth keeping: what differs from the script, and the evidence for it.

Used by ``cockpit save`` and by the screen's key; it names no figure that was not measured under this setup.
"""

from __future__ import annotations

import math
from pathlib import Path

from cockpit.analysis.policy import POLICY
from cockpit.analysis.student import t_quantile
from cockpit.config.assign import Wishes
from cockpit.config.setup import Machine, Measured, SavedSetup, words_of
from cockpit.config.write import write_setup
from cockpit.model.errors import CockpitError

from .environment import tuned_environment
from .knobs import tuned_loaders, tuned_setup
from .measure import windows_of
from .state import State

DEFAULT_FILE = "cockpit.toml"


def saved_of(state: State) -> SavedSetup:
    """What a file would hold now."""
    per_s, interval = measured_now(state)
    machine = state.machine
    return SavedSetup(
        Wishes(tuned_setup(state), tuned_loaders(state), tuned_environment(state)),
        Measured(state.baseline.samples_per_s if state.baseline else None, per_s, interval),
        Machine(
            machine.cpus_usable if machine else None,
            next((device.name for device in state.gpu.devices if device.name), None) if state.gpu else None,
            state.torch,
        ),
    )


def measured_now(state: State) -> tuple[float | None, tuple[float, float] | None]:
    """Samples per second under the setup in force and the 95 % interval of that mean; None while not measured."""
    logs = [
        math.log(value)
        for window in windows_of(state.current, state.current.capacity)
        if (value := window.samples_per_s)
    ]
    if not logs:
        return None, None
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return math.exp(mean), None
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / (len(logs) - 1))
    reach = t_quantile(POLICY.confidence, len(logs) - 1) * spread / math.sqrt(len(logs))
    return math.exp(mean), (math.exp(mean - reach), math.exp(mean + reach))


def save(state: State, path: Path, *, force: bool = False) -> list[str]:
    """Write the setup of ``state`` to ``path``; the words that were saved. Raises CockpitError where it is not."""
    saved = saved_of(state)
    words = words_of(saved.wishes)
    if not words:
        raise CockpitError("nothing to save: every knob is as the script has it")
    write_setup(path, saved, force=force)
    return words

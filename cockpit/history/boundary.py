"""When the next epoch begins, which is when most changes come into force: in seconds, and whether it is in sight.

Pure; read by screen, command line and engine, so that none of them promises a boundary that will not come.
"""

from __future__ import annotations

from .knobs import training_loaders
from .measure import recent_phases
from .state import State

FAR_S = 86400.0
"""An epoch that takes longer than this ends for nobody who waits."""
NO_END = "no epoch's end in sight"


def boundary_in_s(state: State) -> float | None:
    """Seconds until the epoch's end at the present pace; None where no end is known, or it is over already.

    Nobody knows how long the script goes on with something else (a validation, say) until the next one begins.
    """
    lengths = {loader.steps_per_epoch for loader in training_loaders(state)}
    phases = recent_phases(state.current)
    total = lengths.pop() if len(lengths) == 1 else None
    if not total or state.step_in_epoch is None or phases is None or state.step_in_epoch >= total:
        return None
    return (total - state.step_in_epoch) * phases.step_ms / 1000.0


def is_out_of_sight(state: State) -> bool:
    """Whether nobody can say that an epoch will end: no loader, one without a length, or one as long as for ever."""
    loaders = training_loaders(state)
    if not loaders:
        return bool(state.step)
    if not any(loader.boundaries for loader in loaders) and any(loader.steps_per_epoch is None for loader in loaders):
        return True
    return (boundary_in_s(state) or 0.0) > FAR_S

"""The states of every generator that a whole process shares: torch's on each device, NumPy's and Python's own.

Taken at an epoch's end, put back where the next process begins its first epoch. It initialises no device and imports
nothing: what the script has not used has no state worth keeping.
"""

from __future__ import annotations

import importlib
import pickle
import random
import sys
from typing import Any

from ..job import ACCELERATORS, initialised


def taken(torch: Any) -> dict[str, Any]:
    """All states as they are now."""
    found: dict[str, Any] = {"torch": torch.random.get_rng_state(), "random": random.getstate()}
    numpy = _numpy()
    if numpy is not None:
        found["numpy"] = numpy.get_state()
    for name in ACCELERATORS:
        module = initialised(name)
        if module is not None:
            found[name] = [module.get_rng_state(index) for index in range(module.device_count())]
    mps = sys.modules.get("torch.mps")
    if mps is not None and torch.backends.mps.is_available():
        found["mps"] = mps.get_rng_state()
    return found


def put(torch: Any, states: dict[str, Any]) -> list[str]:
    """Puts them back; names what could not be: a device that is not there (any more)."""
    missed = []
    torch.random.set_rng_state(states["torch"])
    random.setstate(states["random"])
    if "numpy" in states:
        importlib.import_module("numpy.random").set_state(states["numpy"])
    for name in ACCELERATORS:
        module = sys.modules.get("torch." + name)
        for index, state in enumerate(states.get(name, ())):
            if module is None or not module.is_available() or index >= module.device_count():
                missed.append("%s:%d" % (name, index))
            else:
                module.set_rng_state(state, index)
    if "mps" in states:
        if torch.backends.mps.is_available():
            sys.modules["torch.mps"].set_rng_state(states["mps"])
        else:
            missed.append("mps")
    return missed


def put_if_moved(torch: Any, states: dict[str, Any]) -> None:
    """Unpickling may run code of the script's that draws: then what was taken before it is put back."""
    now, names = taken(torch), ("random", "numpy")
    same = torch.equal(now["torch"], states["torch"])
    if not same or any(pickle.dumps(now.get(name)) != pickle.dumps(states.get(name)) for name in names):
        put(torch, {name: states[name] for name in ("torch", *names) if name in states})


def _numpy() -> Any:
    numpy = sys.modules.get("numpy.random")
    return numpy if hasattr(numpy, "get_state") else None

"""How the generators stood that chance seeds, when the first process of a run imported them: random, NumPy's, torch's.

Each later process begins with the same, so that what an unseeded script draws before its loop (a split of the data, an
order of files) is what the training has gone on with.

The injected sitecustomize notes the first two, and puts them back in a later process; this module sees to torch's, and
writes them down where the script opts in. It draws nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

BEGAN = "began"
"""In the folder of the hand-offs; the injected sitecustomize spells it itself."""
ANEW = (
    "what the script draws before its loop without a seed (a split of the data) was drawn anew: it is drawn as before "
    "only where no shell or launcher stands between"
)


def torch_begins(torch: Any) -> None:
    """Torch has just been imported, and nobody has drawn from it."""
    beginning = _noticed()
    if beginning is None:
        return
    state = beginning.told.get("torch")
    if isinstance(state, str):
        torch.random.set_rng_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
    beginning.noted["torch"] = bytes(torch.random.get_rng_state().tolist()).hex()


def drawn_anew() -> list[str]:
    """Where this process goes on with what another has begun, and nobody has put its generators back: a sentence.

    It cannot be mended here, since its first lines have run; and one that another program has started may be any of it.
    """
    beginning = _noticed()
    return [] if beginning is None or beginning.told else [ANEW]


def write_down(folder: str) -> None:
    """For all later processes: called in the first that opts in. A disk that is full is no reason to fail."""
    beginning = _noticed()
    if beginning is None:
        return
    new = os.path.join(folder, ".%s.%d" % (BEGAN, os.getpid()))
    with contextlib.suppress(OSError):
        with open(new, "w", encoding="utf-8") as file:
            file.write(repr({name: _plain(state) for name, state in beginning.noted.items()}))
        os.rename(new, os.path.join(folder, BEGAN))


def _noticed() -> Any:
    return getattr(sys.modules.get("sitecustomize"), "_beginning", None)


def _plain(state: Any) -> Any:
    """NumPy's array as a list."""
    if isinstance(state, tuple):
        return tuple(_plain(each) for each in state)
    return state.tolist() if hasattr(state, "tolist") else state

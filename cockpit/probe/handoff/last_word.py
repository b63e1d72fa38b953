"""What has just landed here must be known to whoever goes on: the engine writes that down, and is a moment behind.

A change that lands in the last step of an epoch, and a hand-over at its end: without a look the new process would begin
with the settings of before, and nobody had taken them back.
"""

from __future__ import annotations

import time

from ...model.names import START_FILE
from ..lives import read

WAITS_S, EVERY_S = 5.0, 0.01
"""An engine that is gone writes nothing any more: then the training hands over with what was written last."""
LANDED = "landed"
"""Of ``start.json`` of a later life: the ids of the changes that its settings hold."""


def wait_until_known(life: str | None, change: str | None) -> None:
    """Until what the process of ``life`` begins with holds the newest ``change`` that landed here, if it ever does."""
    until = time.monotonic() + WAITS_S
    while life is not None and change is not None and time.monotonic() < until:
        landed = read(life, START_FILE).get(LANDED)
        if not isinstance(landed, list) or change in landed:
            return
        time.sleep(EVERY_S)

"""A loader worker that has only just come up, its training dead meanwhile: it must not wait for work for ever.

Spawned and forkserver's workers import for seconds. torch's own watchdog in a worker asks for the parent as it stands
then, and whoever took the orphan in never dies. Put round it by ``install``; matters to nobody but such a worker.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

from .orphans import lives


def entering(watchdog: Any) -> Any:
    return watchdog


def left(watchdog: Any, _: Any, error: BaseException | None) -> None:
    """The watchdog has noted its parent: where that is not who started this worker, it sees that it is gone."""
    parent = multiprocessing.parent_process()
    if error is not None or parent is None or parent.pid is None:
        return
    if not (lives(parent.pid) and parent.is_alive()):
        watchdog.manager_dead = True

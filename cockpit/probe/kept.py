"""Persistent workers that hang on a loader between epochs: whether they serve the next one, or end before it.

Called by the control at a loader's ``__iter__``. It must never take away what an iterator reads from that the script
still holds.
"""

from __future__ import annotations

from typing import Any

from .groups import Group
from .mechanism import is_source


def reusable(kept: Any, group: Group, script: Group) -> Any:
    """``kept``, where it is a source of ours that can serve another epoch under ``group``, else None."""
    fits = is_source(kept) and kept.group == group and not kept._shutdown
    return kept if fits and not in_use(kept, script) else None


def in_use(kept: Any, script: Group) -> bool:
    """Whether an iterator that the script still holds reads from it (persistent ones are reset, as in torch)."""
    chain = kept.user() if is_source(kept) else None
    return not script.persistent_workers and chain is not None and chain.live is kept


def release(loader: Any, managed: bool, script: Group) -> None:
    """What will not serve the next epoch ends before others are started."""
    kept = getattr(loader, "_iterator", None)
    if kept is None or not (is_source(kept) or managed):
        return
    loader._iterator = None
    if not in_use(kept, script):
        kept._shutdown_workers()

"""Which part of a training this process is: its rank, how many there are, and the accelerator it uses.

Asked by the probe in either thread. It must never import anything, nor initialise what the training has not: that
would break the forks of its children.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

ACCELERATORS = ("cuda", "xpu", "hpu", "npu")


class Job:
    """What torch.distributed says where the script has initialised it, else the launcher's word."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def rank(self) -> int | None:
        return self._told("get_rank", "RANK")

    def world(self) -> int | None:
        return self._told("get_world_size", "WORLD_SIZE")

    def size(self) -> int:
        """How many ranks there are: one where nobody has said anything."""
        return self.world() or 1

    def _told(self, ask: str, name: str) -> int | None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(getattr(distributed, ask)())
        text = self._environ.get(name, "")
        return int(text) if text.isdigit() else None


def initialised(name: str) -> Any:
    """torch's module of that accelerator where the training has initialised it itself, else None."""
    module: Any = sys.modules.get("torch." + name)
    return module if module is not None and getattr(module, "is_initialized", lambda: False)() else None


def accelerator() -> str | None:
    """Only what the training has initialised itself."""
    return next((name for name in ACCELERATORS if initialised(name) is not None), None)

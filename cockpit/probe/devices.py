"""Which accelerators this training uses, by the names that the driver knows them by too. Called at a step's end.

Runs in the training's own thread and asks only a CUDA that the script has initialised itself: it must never initialise
it, since that would break the script's later forks.
"""

from __future__ import annotations

from typing import Any

AGAIN_NS = 10_000_000_000
"""A training may begin to use another device later: so often, once it uses one."""


class Devices:
    """``names`` are all that were ever seen used, in the order in which they came."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._due_ns = 0
        self.names: tuple[str, ...] = ()

    def look(self, now_ns: int) -> bool:
        """In the training's thread: whether there are more than before."""
        if now_ns < self._due_ns:
            return False
        found = tuple(dict.fromkeys((*self.names, *used_devices(self._torch))))
        self._due_ns = now_ns + AGAIN_NS if found else 0
        more, self.names = found != self.names, found
        return more


def used_devices(torch: Any) -> tuple[str, ...]:
    """UUIDs of the devices on which this process holds memory; () where there are none, or torch does not tell."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or getattr(torch.version, "hip", None) or not cuda.is_initialized():
        return ()
    # torch's own books of its memory: nothing is asked of the device
    used = [at for at in range(cuda.device_count()) if cuda.memory_reserved(at) > 0]
    uuids = [getattr(cuda.get_device_properties(at), "uuid", None) for at in used]
    return tuple(str(uuid) for uuid in uuids if uuid is not None)

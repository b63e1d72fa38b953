"""Which accelerators this training uses, by the names that the driver knows them by too. Called once, at a step's end.

Runs in the training's own thread and asks only a CUDA that the script has initialised itself: it must never initialise
it, since that would break the script's later forks.
"""

from __future__ import annotations

from typing import Any


def used_devices(torch: Any) -> tuple[str, ...]:
    """UUIDs of the devices on which this process holds memory; () where there are none, or torch does not tell."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or getattr(torch.version, "hip", None) or not cuda.is_initialized():
        return ()
    # torch's own books of its memory: nothing is asked of the device
    used = [at for at in range(cuda.device_count()) if cuda.memory_reserved(at) > 0]
    uuids = [getattr(cuda.get_device_properties(at), "uuid", None) for at in used]
    return tuple(str(uuid) for uuid in uuids if uuid is not None)

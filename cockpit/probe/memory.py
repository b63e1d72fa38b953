"""The memory that a tensor lies in, which several may share; and which have none.

Asked by all of the probe that tells tensors apart by it. It runs nothing of the script, but what a subclass of its own
does when it is asked for its storage.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Memory(NamedTuple):
    """``address`` is 0 where nothing lies there: an empty tensor, or one that only has a shape (meta, fake)."""

    storage: Any
    address: int


def memory_of(tensor: Any) -> Memory | None:
    """None where it has none of its own: sparse ones, subclasses that only wrap others."""
    try:
        storage = tensor.untyped_storage()
        # a fake one warns of being asked
        return Memory(storage, 0 if storage.device.type == "meta" else int(storage.data_ptr()))
    except (RuntimeError, NotImplementedError, AttributeError):
        return None

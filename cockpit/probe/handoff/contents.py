"""Every tensor in a tree of anything that can be pickled: its shape, type and checksum, in the order of pickling.

Called before a hand-off is written and on what was read back: the two lists must be equal. It changes nothing, draws
nothing, and copies one tensor at a time where it lies on a device.
"""

from __future__ import annotations

import ctypes
import pickle
import zlib
from typing import Any, NamedTuple

from ..aside import Aside
from ..memory import memory_of

PROTOCOL = 2
"""torch.save's own: what cannot be pickled so is found here first, thing by thing."""


class Contents(NamedTuple):
    """``tensors``: one row each. ``nbytes``: what they and the rest weigh, shared storages once."""

    tensors: list[list[Any]]
    nbytes: int


class _Counter:
    """Where the pickle goes: only its length is kept."""

    def __init__(self) -> None:
        self.length = 0

    def write(self, data: Any) -> int:
        self.length += len(data)
        return len(data)


class _Finder(pickle.Pickler):
    """Meets every object once; tensors are set apart, and not pickled."""

    def __init__(self, sink: Any, torch: Any) -> None:
        super().__init__(sink, PROTOCOL)
        self._kind = torch.Tensor
        self.found: dict[int, Any] = {}

    def persistent_id(self, item: Any) -> int | None:
        if not isinstance(item, self._kind):
            return None
        self.found.setdefault(id(item), item)
        return len(self.found)


def contents_of(torch: Any, tree: Any, sums: bool = True) -> Contents:
    """What is in ``tree``; raises whatever pickling it raises. Without ``sums``, checksums are None."""
    counter = _Counter()
    finder = _Finder(counter, torch)
    finder.dump(tree)
    storages: dict[Any, int] = {}
    rows = []
    for tensor in finder.found.values():
        key, nbytes = _storage(tensor)
        storages[key] = nbytes
        rows.append([list(tensor.shape), str(tensor.dtype), checksum(torch, tensor) if sums else None])
    return Contents(rows, counter.length + sum(storages.values()))


def _storage(tensor: Any) -> tuple[Any, int]:
    """What tells the storage of ``tensor`` from others, and its length: torch.save writes all of it."""
    memory = memory_of(tensor)
    if memory is None:
        return id(tensor), tensor.numel() * tensor.element_size()
    return (str(memory.storage.device), memory.address or id(tensor)), memory.storage.nbytes()


def checksum(torch: Any, tensor: Any) -> int | None:
    """Of the values as they lie in memory; None for what has no plain memory (sparse, quantized, meta, nested)."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta" or tensor.is_nested:
        return None
    with torch.no_grad():
        plain = tensor.detach()
        if plain.device.type != "cpu" or plain.is_conj() or plain.is_neg() or not plain.is_contiguous():
            plain = Aside(torch).copy(plain, torch.device("cpu"), packed=True)
    length = plain.numel() * plain.element_size()
    if not length:
        return 0
    return zlib.crc32((ctypes.c_ubyte * length).from_address(plain.data_ptr()))

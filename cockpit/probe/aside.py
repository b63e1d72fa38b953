"""Copies of tensors that come from no malloc: the training's own must not notice that we had some, or gave them back.

What a large block that is freed teaches glibc (to keep such blocks from now on, or that the end of the heap may not be
given back) lasts as long as the process: a training that paid page faults in each step before a change paid none after
it, and the change was said to be faster. Called by whoever in the probe copies tensors of the script for a while. No
tensor made here may be handed to the script: what it keeps must be its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

from .standard import standard

_mmap = standard("mmap")
PIECE = 1 << 20
"""So much is asked of the kernel at once, or as much as a tensor needs; what nobody writes to takes no memory."""
ALIGNED = 64


class Aside:
    """Hands out copies, and room; the memory goes back to the kernel once the last of them is gone."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._piece: Any = None
        self._used = self._size = 0

    def copy(self, tensor: Any, device: Any = None, packed: bool = False) -> Any:
        """The values of ``tensor``, on ``device`` or else where it lies; ``packed``: in the order of their indices.
        Raises RuntimeError or MemoryError where torch itself cannot copy it."""
        device = tensor.device if device is None else device
        with self._torch.no_grad():
            if tensor.numel() and device.type == "cpu" and self._is_plain(tensor):
                # under vmap nothing may be written to memory of ours, and there may be none: then as torch copies
                with contextlib.suppress(RuntimeError, MemoryError):
                    return self._copied(tensor, packed)
            copied = tensor.detach().to(device, copy=True)
            return copied.contiguous() if packed else copied

    def _copied(self, tensor: Any, packed: bool) -> Any:
        size, strides = tensor.numel() * tensor.element_size(), tensor.stride()
        there = self.empty(tensor.shape, tensor.dtype, size)
        if not packed and _is_dense(tensor.shape, strides):  # nothing is moved about
            there = there.as_strided(tensor.shape, strides, there.storage_offset())
        return there.copy_(tensor.detach())

    def empty(self, shape: Any, dtype: Any, size: int) -> Any:
        """Room for ``size`` bytes of ``dtype``. Raises MemoryError."""
        return self._room(size).view(dtype).view(shape)

    def _is_plain(self, tensor: Any) -> bool:
        torch = self._torch
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return False
        return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)

    def _room(self, size: int) -> Any:
        """So many bytes that nobody else has."""
        if self._used + size > self._size:
            self._size = max(PIECE, size)
            try:
                memory = _mmap.mmap(-1, self._size, flags=_mmap.MAP_PRIVATE | _mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise MemoryError(str(error)) from None
            self._piece, self._used = self._torch.frombuffer(memory, dtype=self._torch.uint8), 0
        began = self._used
        self._used = -(-(began + size) // ALIGNED) * ALIGNED
        return self._piece[began : began + size]


def _is_dense(shape: Any, strides: Any) -> bool:
    """Whether its elements lie side by side in some order, each in a place of its own."""
    expected = 1
    for stride, length in sorted((stride, length) for stride, length in zip(strides, shape) if length > 1):
        if stride != expected:
            return False
        expected *= length
    return True

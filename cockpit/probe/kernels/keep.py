"""What a forward may change besides its result, kept before a first call under a new setting and put back if it fails.

Called by ``root`` only. It must draw nothing from any generator, and put back exactly what it took.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Callable

LARGEST = 16 * 2**20
"""Bytes of a buffer that is still kept: statistics are small, what is larger are tables that no forward changes."""


LARGEST_INPUT = 256 * 2**20
"""Bytes of a tensor that is handed to the forward: some change it in place (they normalise it, or mask it)."""
DEEPEST = 3


class Kept:
    """The generators' states, the module's buffers and what the forward is handed, as they are now."""

    def __init__(self, torch: Any, module: Any, inputs: Any = ()) -> None:
        self._torch = torch
        self._back: list[Callable[[], Any]] = []
        self._generator(torch.default_generator)
        cuda = torch.cuda
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            for generator in cuda.default_generators:
                self._generator(generator)
        states = random.getstate()
        self._back.append(lambda: random.setstate(states))
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and hasattr(numpy, "get_state"):
            drawn = numpy.get_state()
            self._back.append(lambda: numpy.set_state(drawn))
        self._buffers = [
            (owner._buffers, name, tensor, tensor.detach().clone())
            for owner in module.modules()
            for name, tensor in owner._buffers.items()
            if tensor is not None and tensor.numel() * tensor.element_size() <= LARGEST
        ]

        self._inputs = [(tensor, tensor._version, self._copy(tensor)) for tensor in self._tensors(inputs)]

    def _tensors(self, value: Any, depth: int = 0) -> Iterator[Any]:
        if isinstance(value, self._torch.Tensor):
            if not value.is_inference():  # such a one has no count of its changes
                yield value
        elif depth < DEEPEST and isinstance(value, (tuple, list, Mapping)):
            for item in list(value.values() if isinstance(value, Mapping) else value):
                yield from self._tensors(item, depth + 1)

    def _copy(self, tensor: Any) -> Any:
        """None where it is too large, or there is no memory for it."""
        if tensor.is_sparse or tensor.numel() * tensor.element_size() > LARGEST_INPUT:
            return None
        try:
            return tensor.detach().clone()
        except RuntimeError:
            return None

    def _generator(self, generator: Any) -> None:
        state = generator.get_state()
        self._back.append(lambda: generator.set_state(state))

    def put_back(self) -> str | None:
        """What could not be put back, in words; None where all could."""
        lost = None
        with self._torch.no_grad():
            for holder, name, tensor, value in self._buffers:
                holder[name] = tensor
                tensor.copy_(value)
            for tensor, version, value in self._inputs:
                if tensor._version == version:
                    continue
                if value is None or tensor.shape != value.shape or tensor.requires_grad:  # its graph has it twice
                    lost = "what it did to its input in place was done twice"
                if value is not None and tensor.shape == value.shape:
                    tensor.detach().copy_(value)
        for back in self._back:
            back()
        return lost

"""What a forward may change besides its result, kept before a first call under a new setting and put back if it fails.

Called by ``root`` only. It must draw nothing from any generator, and put back exactly what it took.
"""

from __future__ import annotations

import random
import sys
from typing import Any, Callable

LARGEST = 16 * 2**20
"""Bytes of a buffer that is still kept: statistics are small, what is larger are tables that no forward changes."""


class Kept:
    """The generators' states and the module's buffers as they are now."""

    def __init__(self, torch: Any, module: Any) -> None:
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

    def _generator(self, generator: Any) -> None:
        state = generator.get_state()
        self._back.append(lambda: generator.set_state(state))

    def put_back(self) -> None:
        with self._torch.no_grad():
            for holder, name, tensor, value in self._buffers:
                holder[name] = tensor
                tensor.copy_(value)
        for back in self._back:
            back()

"""What a forward may change besides its result, kept before a first call under a new setting and put back if it fails.

Called by ``root`` only. It must draw nothing from any generator, put back exactly what it took, and run no code of the
script: what a script's own container or kind of tensor does when it is read is not ours to call. What it copies of the
inputs is bounded in all, and taken under the guard: the forward must run whatever it is handed.
"""

from __future__ import annotations

import random
import sys
from collections import UserDict
from collections.abc import Iterable
from itertools import islice
from typing import Any, Callable

from ..aside import Aside

LARGEST = 16 * 2**20
"""Bytes of a buffer that is still kept: statistics are small, what is larger are tables that no forward changes."""
INPUT_BYTES = 256 * 2**20
"""Bytes that are kept of all that the forward is handed: some change it in place (they normalise it, or mask it)."""
INPUTS = 1000
"""Things that are looked at in what the forward is handed."""
DEEPEST = 5

TWICE = "what it did to its input in place was done twice"
UNSEEN = "what it may have done to its input in place was not looked at"


class Kept:
    """The generators' states, the module's buffers and what the forward is handed, as they are now. ``run`` is the
    guard's."""

    def __init__(self, torch: Any, module: Any, inputs: Any, run: Callable[..., Any]) -> None:
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
        aside = Aside(torch)
        self._buffers = [
            (owner._buffers, name, tensor, aside.copy(tensor))
            for owner in module.modules()
            for name, tensor in owner._buffers.items()
            if tensor is not None and tensor.numel() * tensor.element_size() <= LARGEST
        ]
        self._run = run
        self._inputs = run("inputs", Inputs, torch, inputs)

    def _generator(self, generator: Any) -> None:
        state = generator.get_state()
        self._back.append(lambda: generator.set_state(state))

    def put_back(self) -> str | None:
        """What could not be put back, in words; None where all could."""
        with self._torch.no_grad():
            for holder, name, tensor, value in self._buffers:
                holder[name] = tensor
                tensor.copy_(value)
        found = None if self._inputs is None else self._run("inputs", self._inputs.put_back)
        for back in self._back:
            back()
        return UNSEEN if found is None else found or None


class Inputs:
    """Copies of the tensors among what a forward is handed. Whatever was not looked at is told of as such."""

    def __init__(self, torch: Any, inputs: Any) -> None:
        self._torch = torch
        self._left, self._bytes = INPUTS, INPUT_BYTES
        self._aside = Aside(torch)
        self._whole = True
        """Whether all was looked at that may be or hold a tensor."""
        self._met: dict[int, tuple[Any, int, Any]] = {}
        with torch.no_grad(), torch._C.DisableTorchFunction():
            self._look(inputs, 0)

    def _look(self, value: Any, depth: int) -> None:
        if self._left <= 0:
            self._whole = False
            return
        self._left -= 1
        if issubclass(type(value), self._torch.Tensor):
            self._take(value)
            return
        items = tuple(islice(_items(value), self._left + 1))
        if items and depth >= DEEPEST:
            self._whole = False
            return
        for item in items:
            self._look(item, depth + 1)

    def _take(self, tensor: Any) -> None:
        if id(tensor) in self._met or tensor.is_inference():  # such a one has no count of its changes
            return
        self._met[id(tensor)] = (tensor, tensor._version, self._copy(tensor))

    def _copy(self, tensor: Any) -> Any:
        """None where it is too large, of a kind that is not copied by rows, or there is no memory for it."""
        torch = self._torch
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return None
        if tensor.layout is not torch.strided or tensor.is_nested:
            return None
        size = tensor.numel() * tensor.element_size()
        if size > self._bytes:
            return None
        try:
            copy = self._aside.copy(tensor)
        except (RuntimeError, MemoryError):
            return None
        self._bytes -= size
        return copy

    def put_back(self) -> str:
        """What could not be put back, in words; empty where all could."""
        lost = "" if self._whole else UNSEEN
        with self._torch.no_grad(), self._torch._C.DisableTorchFunction():
            for tensor, version, value in self._met.values():
                if tensor._version == version:
                    continue
                if value is None or tensor.shape != value.shape:
                    lost = TWICE
                    continue
                if tensor.requires_grad:  # its graph has it twice
                    lost = TWICE
                tensor.detach().copy_(value)
        return lost


def _items(value: Any) -> Iterable[Any]:
    """What lies in a container, as Python's own kinds hold it."""
    kind = type(value)
    if issubclass(kind, UserDict):  # what tokenizers make
        value = object.__getattribute__(value, "__dict__").get("data")
        kind = type(value)
    for plain, read in _READ:
        if issubclass(kind, plain):
            return read(value)
    return ()


_READ: tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...] = (
    (dict, dict.values),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
)

"""What a worker of ours hands over is what the batch was when it was made, as it would have been without workers.

torch pickles a batch in a thread, while the worker makes the next one, and moves a tensor's memory to where the
training sees it: a dataset or ``collate_fn`` that fills one buffer again and again would change batches that wait. So
where the script has no workers, ``collate_fn`` is followed by pickling at once, with memory of its own for each batch;
that is the copy which sending makes anyway, only earlier. What torch's own collate makes is new each time, and is
left alone. It runs in workers only; what cannot be sent unchanged it raises, and the change that made the worker fails.
"""

from __future__ import annotations

import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable

from .memory import memory_of
from .unsent import cannot_send
from .whose import MRO, NAME, is_scripts, module_of

SMALL = 4096
"""So many bytes are not worth telling a part from its whole."""
ANOTHER = "a batch holds %s, which is told by being the same one: from a worker comes another"
BY_VALUE = ("__reduce__", "__reduce_ex__", "__eq__", "__getnewargs__", "__getnewargs_ex__")
"""A class that has one of these has thought of copies."""


class Sending:
    """In the place of ``collate_fn``, which a fetch calls last; pickled with it for workers that are not forked."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        return Sent(pickled(self.collate_fn(samples)))


class Sent:
    """A batch in pickled form: becomes the batch itself where it arrives."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._stream,)


def instead_of(torch: Any, collate_fn: Any, batched: bool) -> Any:
    """``collate_fn`` for workers that the script has not asked for."""
    fresh = batched and collate_fn is getattr(torch.utils.data, "default_collate", None)
    return collate_fn if fresh else Sending(collate_fn)


def pickled(batch: Any) -> bytes:
    """As a worker's queue would pickle it, and nothing that is done to ``batch`` later shows."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    try:
        pickler.dump(batch)
    except _Another as error:
        raise RuntimeError(str(error)) from None
    except Exception as error:  # noqa: BLE001
        raise RuntimeError(cannot_send(error)) from None
    return stream.getvalue()


class _Another(Exception):
    pass


class _Pickler(ForkingPickler):
    """Tensors that fill most of their memory get a copy of all of it, and keep what they share with each other; a
    small part of a large one, such as a row of the whole data set, is copied alone."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        torch = self._torch = sys.modules["torch"]
        self._memory, self._reduced = torch.UntypedStorage, self.dispatch_table
        self._copied: dict[int, Any] = {}
        """By the address of the memory that is to be copied whole: its copy, once there is one."""

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing)
        if issubclass(kind, type):
            return NotImplemented
        if issubclass(kind, self._torch.Tensor):
            return self._of_tensor(thing, kind)
        if kind is self._memory and thing.device.type == "cpu" and thing.data_ptr() in self._copied:
            return self._reduced[kind](self._copy_of(thing))
        if kind is object or _is_the_scripts_one(thing, kind):
            raise _Another(ANOTHER % _called(thing, kind))
        return NotImplemented

    def _of_tensor(self, tensor: Any, kind: type) -> Any:
        torch = self._torch
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_nested:
            return NotImplemented  # made of others, which come here in their turn; or none of a worker's memory
        memory = memory_of(tensor)
        if memory is None or not memory.address or not memory.storage.nbytes():
            return NotImplemented
        address, size = memory.address, memory.storage.nbytes()
        if size <= 2 * tensor.nbytes + SMALL:
            self._copied.setdefault(address, None)
        elif kind is torch.Tensor and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj()):
            return self._reduced[kind](_part(torch, tensor))
        return NotImplemented

    def _copy_of(self, memory: Any) -> Any:
        address = memory.data_ptr()
        copy = self._copied[address]
        if copy is None:
            copy = self._copied[address] = type(memory)._new_shared(memory.nbytes())
            copy.copy_(memory)
        return copy


def _part(torch: Any, tensor: Any) -> Any:
    """A copy of what ``tensor`` alone sees of its memory; with the same strides, where that is not much more."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    if span > 2 * tensor.numel():
        return tensor.clone()
    whole = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return whole.as_strided(tensor.size(), tensor.stride(), 0)


def _is_the_scripts_one(thing: Any, kind: type) -> bool:
    """Whether it stands under a name in the script's module, and is equal to nothing but itself."""
    name = module_of(kind)
    if not is_scripts(name) or any(each in vars(owner) for owner in MRO(kind)[:-1] for each in BY_VALUE):
        return False
    return any(value is thing for value in list(vars(sys.modules[name]).values())) if name in sys.modules else False


def _called(thing: Any, kind: type) -> str:
    held = list(vars(sys.modules.get("__mp_main__") or sys.modules["__main__"]).items())
    name = next((str(name) for name, value in held if value is thing), None)
    return name or ("an object()" if kind is object else "an instance of %s" % NAME(kind))

"""A copy of what one training has learnt, taken where a kernel change lands, and put back if it goes wrong.

Made by ``trial`` in the training's thread between two steps. What is put back goes into the very tensors, dicts and
lists that were there, since script, optimizer and recorded kernels hold on to them. It must take no memory that the
training may need, hold no module, optimizer or parameter alive, and say what it could not copy.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from ...model.counts import counted
from ..aside import Aside
from ..preflight import look, words_of

SHARE = 0.25
"""Of the memory that is free, so much may be taken."""
LONGEST_S = 2.0
BYTES_PER_S: Mapping[tuple[str, str], float] = {("cpu", "cpu"): 0.8e9, ("cuda", "cuda"): 100e9, ("cuda", "cpu"): 2e9}
"""What copying from one kind of device to another comes to at least, with memory that nobody has touched yet."""
DEEPEST = 6

Optimizers = Iterable[Any]


class Room(NamedTuple):
    """Where the copies of each device's tensors go; ``reason``: why there can be none."""

    where: Mapping[Any, Any]
    reason: str | None = None


def room(torch: Any, sizes: Mapping[Any, int]) -> Room:
    """Whether ``sizes`` (bytes by device) fit, on the device itself or else in the machine's memory."""
    cpu, where, seconds = torch.device("cpu"), {}, 0.0
    memory = look(()).memory_left
    left = {cpu: None if memory is None else memory * SHARE}
    for device, size in sorted(sizes.items(), key=lambda item: str(item[0])):
        if device not in left:
            left[device] = _free(torch, device)
        target = next((at for at in dict.fromkeys((device, cpu)) if (left[at] or 0) >= size), None)
        speed = BYTES_PER_S.get((device.type, target.type)) if target is not None else None
        if target is None or speed is None:
            known = [share for share in (left[device], left[cpu]) if share is not None]
            most = "%s may be taken" % words_of(int(max(known))) if known else "it is not known what is free"
            return Room({}, "a copy of its state needs %s, and %s" % (words_of(size), most))
        where[device] = target
        left[target] = (left[target] or 0) - size
        seconds += size / speed
    if seconds > LONGEST_S:
        return Room({}, "a copy of its state (%s) would take about %.0f s" % (words_of(sum(sizes.values())), seconds))
    return Room(where)


def _free(torch: Any, device: Any) -> float | None:
    if device.type != "cuda":
        return None
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(SHARE * (torch.cuda.mem_get_info(device)[0] + held))


def trained(modules: Iterable[Any], optimizers: Optimizers) -> list[Any]:
    """The tensors that training changes: parameters with gradients and buffers of the modules, and whatever else the
    optimizers have been given."""
    found: dict[int, Any] = {}
    for module in modules:
        for tensor in (*(p for p in module.parameters() if p.requires_grad), *module.buffers()):
            found[id(tensor)] = tensor
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            found.update((id(tensor), tensor) for tensor in group["params"])
    return list(found.values())


def sizes(torch: Any, tensors: Iterable[Any], optimizers: Optimizers) -> dict[Any, int]:
    """Bytes by device of ``tensors`` and of the optimizers' own state."""
    found: dict[Any, int] = {}
    for tensor in (*tensors, *(t for o in _once(optimizers) for t in _tensors(torch, o.state, DEEPEST))):
        found[tensor.device] = found.get(tensor.device, 0) + tensor.numel() * tensor.element_size()
    return found


def _once(optimizers: Optimizers) -> list[Any]:
    """One of each state: a wrapped optimizer shows the state of the one inside."""
    return list({id(optimizer.state): optimizer for optimizer in optimizers}.values())


def _tensors(torch: Any, value: Any, depth: int) -> Iterable[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(torch, item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(torch, item, depth - 1)


Restore = Callable[[Any], Any]
"""Takes what is there now, returns what was there; the same object wherever that can be changed in place."""


class Snapshot:
    """The copies. ``opaque``: kinds of things in the optimizers' state that could not be copied."""

    def __init__(self, torch: Any, modules: Iterable[Any], optimizers: Optimizers, where: Room) -> None:
        self._torch = torch
        self._where = where.where
        self._aside = Aside(torch)
        self.opaque: set[str] = set()
        modules, optimizers = list(modules), _once(optimizers)
        with torch.no_grad():
            self._tensors = [self._tensor(tensor) for tensor in trained(modules, optimizers)]
            self._states = [(weakref.ref(o), self._map(o.state, DEEPEST)) for o in optimizers]
            self._scalers = [(weakref.ref(s), self._scaler(s)) for s in scalers(torch)]
        del self._aside  # what it has begun lies with the copies
        self._frozen = [(weakref.ref(p), p._version) for m in modules for p in m.parameters() if not p.requires_grad]

    def put_back(self) -> list[str]:
        """In place, between two steps; what could not be put back, in words."""
        with self._torch.no_grad():
            for restore in self._tensors:
                restore(None)
            for ref, restore in self._states:
                optimizer = ref()
                if optimizer is not None:
                    restore(optimizer.state)
            for ref, parts in self._scalers:
                scaler = ref()
                for name, restore in parts.items() if scaler is not None else ():
                    setattr(scaler, name, restore(getattr(scaler, name)))
        lost = ["the optimizer's %s" % kind for kind in sorted(self.opaque)]
        frozen = [ref() for ref, version in self._frozen if getattr(ref(), "_version", version) != version]
        return [*lost, *([counted(len(frozen), "frozen parameter")] if frozen else [])]

    # ---- copying ----

    def _kept(self, value: Any, depth: int) -> Restore:
        if isinstance(value, self._torch.Tensor):
            return self._tensor(value)
        if depth and isinstance(value, dict):
            return self._map(value, depth - 1)
        if depth and isinstance(value, (list, tuple)):
            return self._items(value, depth - 1)
        if not isinstance(value, (type(None), bool, int, float, complex, str, bytes, self._torch.dtype)):
            self.opaque.add(type(value).__name__)
        return lambda now: value

    def _tensor(self, tensor: Any) -> Restore:
        copied = self._aside.copy(tensor, self._where.get(tensor.device))
        ref, device = weakref.ref(tensor), tensor.device

        def restore(now: Any) -> Any:
            found = ref()
            if found is None or found.shape != copied.shape:
                return copied.to(device, copy=True)  # replaced since: what was there is gone
            found.data.copy_(copied)  # as data: a graph that is still needed must not refuse it
            return found

        return restore

    def _map(self, value: Any, depth: int) -> Restore:
        kept = [(_key(self._torch, key), self._kept(item, depth)) for key, item in value.items()]

        def restore(now: Any) -> Any:
            there = {key: restore for ref, restore in kept if (key := ref()) is not None}
            if not isinstance(now, dict):
                return {key: restore(None) for key, restore in there.items()}
            for key in [key for key in now if key not in there]:
                del now[key]
            for key, restore in there.items():
                now[key] = restore(now.get(key))
            return now

        return restore

    def _items(self, value: Any, depth: int) -> Restore:
        kept, is_list = [self._kept(item, depth) for item in value], isinstance(value, list)

        def restore(now: Any) -> Any:
            items = [restore(None) for restore in kept]
            if not is_list:
                return tuple(items)
            if not isinstance(now, list):
                return items
            now[:] = items
            return now

        return restore

    def _scaler(self, scaler: Any) -> dict[str, Restore]:
        return {name: self._kept(getattr(scaler, name), 0) for name in ("_scale", "_growth_tracker")}


def _key(torch: Any, key: Any) -> weakref.ref[Any] | Callable[[], Any]:
    return weakref.ref(key) if isinstance(key, torch.Tensor) else lambda: key


def scalers(torch: Any) -> list[Any]:
    """The GradScalers of the script that are in use. Looks through all objects: ask seldom."""
    kinds, todo = set(), [torch.amp.grad_scaler.GradScaler]
    while todo:
        kinds.add(kind := todo.pop())
        todo += kind.__subclasses__()
    found = [thing for thing in gc.get_referrers(*kinds) if type(thing) in kinds]  # an object refers to its class
    return [scaler for scaler in found if scaler._enabled and scaler._scale is not None]

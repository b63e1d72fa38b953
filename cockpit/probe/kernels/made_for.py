"""Whether a training is made for one batch size alone: looked for while another one is asked for, over a few steps.

Told of each forward of a root, and of what each backward begins from. A tensor with a dimension of the batch size that
was there in an earlier step (a hidden state, a constant vector of labels, a buffer that batches are copied into) did
not come with the batch. It keeps no tensor alive, changes nothing, and is silent about what it cannot know: a tensor
made anew in each step may be made for whatever the batch holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..memory import memory_of
from .rings import Rings

STEPS = 4
"""So many steps are looked at for one change: what is made for one size is there in every step."""
NODES = 8
"""Operations behind a loss that are looked at: the loss itself, and what was made of it."""
DEEPEST = 3
_TARGET = "_raw_saved_target"
"""What torch's losses have kept of their targets, without unpacking it: checkpointing would compute it all again."""


class MadeFor:
    """``found`` says by batch size what was seen, in words. ``size``: what is looked for; None: nothing is."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.found: dict[int, str] = {}
        self.rings = Rings(torch)
        self.size: int | None = None
        self._step = self._first = 0
        self._handed: dict[int, tuple[int, Any]] = {}
        """By storage: in which step it was last handed over, or came out of a module, and what keeps its name."""

    def begin(self, size: int, step: int) -> None:
        """Look for what is made for batches of ``size``, from ``step`` on."""
        self.size, self._step, self._first = size, step, step
        self._handed.clear()
        self.rings.begin()

    def next_step(self, step: int) -> bool:
        """``step`` begins; whether there is still something to look for."""
        self._step = step
        if self.size is not None and (self.size in self.found or step - self._first >= STEPS):
            self.end()
        return self.size is not None

    def end(self) -> None:
        """Nothing is looked for any more."""
        self.size = None
        self._handed.clear()
        self.rings.begin()

    # ---- told of ----

    def called(self, module: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """A root was called in the training."""
        tensors = list(self._tensors((args, kwargs)))
        if self.size is not None:
            self.rings.called(module, self.size)
        if self.size is None or self._is_common(tensors):
            return
        known = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        for tensor in tensors:
            if id(tensor) not in known:
                self._hand(tensor, "%s is called with" % type(module).__name__)
        for tensor in self._tensors(result):
            self._remember(tensor)

    def back(self, tensors: Any) -> None:
        """A backward begins from ``tensors``."""
        losses = [tensor for tensor in self._tensors(tensors) if tensor.grad_fn is not None]
        waiting, seen = deque(loss.grad_fn for loss in losses), 0
        while waiting and seen < NODES and self.size is not None:
            node, seen = waiting.popleft(), seen + 1
            target = getattr(node, _TARGET, None) if hasattr(type(node), _TARGET) else None
            saved = None if target is None else self._data_of(target)
            if saved is not None and not self._is_common([saved]):
                self._hand(saved, "the loss is made with")
            waiting.extend(following for following, _ in node.next_functions if following is not None)

    def _data_of(self, saved: Any) -> Any:
        try:
            found = saved.data
        except RuntimeError:  # changed in place since, which its own backward will say
            return None
        return found if isinstance(found, self._torch.Tensor) else None

    # ---- what it means ----

    def _is_common(self, tensors: list[Any]) -> bool:
        """Whether another dimension is as large as a batch: then nobody can tell one by its size."""
        return any(list(tensor.shape).count(self.size) > 1 for tensor in tensors)

    def _hand(self, tensor: Any, words: str) -> None:
        before = self._remember(tensor)
        if before is not None and before < self._step and self.size is not None:
            shape = "×".join(map(str, tensor.shape))
            self.found[self.size] = (
                "the loop is made for batches of %d: %s a tensor of %s that is kept from step to step"
                % (self.size, words, shape)
            )

    def _remember(self, tensor: Any) -> int | None:
        """In which step this memory was met before, where it was; only what has a dimension of the batch size."""
        if self.size not in tensor.shape or isinstance(tensor, self._torch.nn.Parameter):
            return None
        memory = memory_of(tensor)
        if memory is None:
            return None
        name = memory.storage._cdata
        before = self._handed.get(name)
        if before is None:
            # the name stays this memory's for as long as the reference lives; the memory itself is not kept
            self._handed[name] = (self._step, self._torch.multiprocessing.reductions.StorageWeakRef(memory.storage))
            return None
        self._handed[name] = (self._step, before[1])
        return before[0]

    def _tensors(self, value: Any, depth: int = 0) -> Iterator[Any]:
        if isinstance(value, self._torch.Tensor):
            yield value
        elif depth < DEEPEST and isinstance(value, (tuple, list)):
            for item in value:
                yield from self._tensors(item, depth + 1)
        elif depth < DEEPEST and isinstance(value, Mapping):
            for item in list(value.values()):
                yield from self._tensors(item, depth + 1)

"""Are the losses finite, and are there gradients? Looked at while a kernel change settles, without waiting for a GPU.

Called by ``trial`` before and after each backward and at each step's end. On a GPU a flag is copied to the machine's
memory while work goes on and read some steps later. A batch that the script itself can live with is no divergence:
only what stays, or has spoilt the parameters, is told.
"""

from __future__ import annotations

import cmath
import math
import sys
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

NONFINITE_STEPS = 3
"""So many steps in a row with a loss that is nan or inf are no accident, even where every update was skipped."""
NONFINITE_LOSSES = 6
"""Where no step ends because of that: so many losses in a row."""
ZERO_STEPS = 5
SAMPLED = 4
"""Gradients that are looked at every step: the smallest. Only where all of those are zero, all others too."""
LOSS, GRADIENT = "loss", "gradient"


class Flag(NamedTuple):
    """One number that has been looked at: the loss, or the largest gradient. ``ready``: whether it has arrived."""

    kind: str
    step: int
    ready: Any
    value: Any


class Finiteness:
    """``parameters`` are the trained ones of the roots; ``found`` tells what went wrong, once it is certain."""

    def __init__(self, torch: Any, parameters: Iterable[Any]) -> None:
        self._torch = torch
        self._parameters = [weakref.ref(p) for p in parameters if p.is_floating_point()]
        self.was_finite = self.are_finite()
        self._judges_zeros = not self._all_zero_now()
        self._small: list[weakref.ref[Any]] = []
        self._flags: deque[Flag] = deque()
        self._words = "nan"
        self._newest: Any = 0.0
        self._bad = self._bad_losses = self._zeros = 0
        self._step: dict[str, tuple[int, bool]] = {}
        self._suspect = False

    # ---- before anything has run under the change ----

    def was(self, tensors: Any) -> None:
        """A backward of a forward from before begins: what it starts from is how things were. Waits for it."""
        for tensor in self._losses(tensors):
            self.was_finite = self.was_finite and is_finite(tensor.detach())

    def was_after(self) -> None:
        """It has run."""
        self._judges_zeros = not self._all_zero_now()

    # ---- in a step ----

    def loss(self, step: int, tensors: Any) -> None:
        """What backward is about to begin from."""
        for tensor in self._losses(tensors):
            with self._torch.no_grad():
                value = tensor.detach()
                self._newest = value if value.numel() == 1 else value.float().sum()
                self._look(LOSS, step, self._newest)

    def _losses(self, tensors: Any) -> list[Any]:
        kind = self._torch.Tensor
        found = (tensors,) if isinstance(tensors, kind) else tuple(tensors or ())
        return [t for t in found if isinstance(t, kind) and t.is_floating_point() and not t.is_sparse]

    def gradients(self, step: int) -> None:
        """After backward: whether it has left any gradient that is not zero."""
        if not self._judges_zeros:
            return
        if not self._small:
            found = (p for p in self._alive() if p.grad is not None and not p.grad.is_sparse)
            self._small = [weakref.ref(p) for p in sorted(found, key=lambda p: p.numel())[:SAMPLED]]
        looked = [g for ref in self._small if (g := getattr(ref(), "grad", None)) is not None and not g.is_sparse]
        if not looked:
            return
        with self._torch.no_grad():
            if looked[0].device.type == "cpu":
                self._look(GRADIENT, step, float(any(map(_any, looked)) or not self._all_zero_now()))
            elif self._suspect:  # worth waiting for
                self._look(GRADIENT, step, float(not self._all_zero_now()))
            else:
                largest = looked[0].abs().amax()
                for gradient in looked[1:]:
                    largest = self._torch.maximum(largest, gradient.abs().amax().to(largest))
                self._look(GRADIENT, step, largest)

    def _look(self, kind: str, step: int, value: Any) -> None:
        if isinstance(value, float):
            self._flags.append(Flag(kind, step, None, value))
        elif value.device.type == "cpu":
            self._flags.append(Flag(kind, step, None, value.item()))
        elif value.device.type == "cuda" and not self._torch.cuda.is_current_stream_capturing():
            there = self._torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            there.copy_(value, non_blocking=True)
            event = self._torch.cuda.Event()
            event.record()
            self._flags.append(Flag(kind, step, event, there))

    def words(self) -> str:
        """What is not finite, where gradients are not: the newest loss, or they alone. Waits for it."""
        value = float(self._newest)
        if math.isfinite(value):
            return "gradients became nan"
        return "loss became %s" % ("nan" if math.isnan(value) else "inf")

    # ---- between two steps ----

    def found(self) -> str | None:
        """What has gone wrong by now, in words; None: nothing that is certain."""
        while self._flags and (self._flags[0].ready is None or self._flags[0].ready.query()):
            flag = self._flags.popleft()
            value = flag.value if flag.ready is None else flag.value.item()
            if flag.kind == LOSS:
                self._loss_read(flag.step, value)
            else:
                self._gradient_read(flag.step, value)
        persists = self._bad >= NONFINITE_STEPS or self._bad_losses >= NONFINITE_LOSSES
        if self._bad and self.was_finite and (persists or not self.are_finite()):
            return "loss became %s" % self._words
        if self._zeros >= ZERO_STEPS:
            return "all gradients became 0"
        return None

    def _loss_read(self, step: int, value: float) -> None:
        """Steps in a row: several losses of one step count once, and one that is not finite spoils it."""
        finite = math.isfinite(value)
        self._bad_losses = 0 if finite else self._bad_losses + 1
        if not finite:
            self._words = "nan" if math.isnan(value) else "inf"
        last, was = self._step.get(LOSS, (-1, True))
        if last == step:
            if was and not finite:
                self._bad, self._step[LOSS] = self._bad + 1, (step, False)
            return
        self._step[LOSS] = (step, finite)
        self._bad = 0 if finite else self._bad + 1

    def _gradient_read(self, step: int, value: float) -> None:
        last, was = self._step.get(GRADIENT, (-1, False))
        zero = value == 0
        if last == step:
            if was and not zero:
                self._zeros, self._step[GRADIENT] = 0, (step, False)
        else:
            self._step[GRADIENT] = (step, zero)
            self._zeros = self._zeros + 1 if zero else 0
        self._suspect = self._zeros > 0

    def are_finite(self) -> bool:
        """Every trained parameter. Waits for the device: only where a change lands, or something is wrong already."""
        totals: dict[Any, Any] = {}
        with self._torch.no_grad():
            for parameter in self._alive():  # what is not finite stays so in any sum
                if parameter.device.type == "cpu" and parameter.dtype != self._torch.float32:  # it would be copied
                    if not is_finite(parameter.detach()):
                        return False
                    continue
                part = parameter.detach().sum(dtype=self._torch.float32)
                totals[part.device] = part + totals.get(part.device, 0)
            return all(math.isfinite(total.item()) for total in totals.values())

    def _alive(self) -> list[Any]:
        return [parameter for ref in self._parameters if (parameter := ref()) is not None]

    def _all_zero_now(self) -> bool:
        """Whether there are gradients, and every one of them is zero."""
        found = [p.grad for p in self._alive() if p.grad is not None]
        return bool(found) and not any(gradient.is_sparse or _any(gradient) for gradient in found)


def _any(gradient: Any) -> bool:
    gradient = gradient.detach()
    plain = gradient.element_size() > 1 and gradient.layout is sys.modules["torch"].strided
    if plain and gradient.device.type == "cpu":  # where "any" makes a mask as long as the gradient first
        return bool(gradient.count_nonzero())
    return bool((gradient if plain else gradient.float()).any())


def is_finite(tensor: Any) -> bool:
    """Waits for it. Masks as long as the tensor are made only where its sum is not finite, which may be too large."""
    if tensor.element_size() == 1:  # float8: there is no such sum, nor such a mask
        tensor = tensor.float()
    if tensor.device.type == "cpu" and cmath.isfinite(tensor.sum().item()):
        return True
    return bool(tensor.isfinite().all())

"""Plain settings of torch that have a getter: float32 matmul precision (TF32) and CPU threads.

Called between two steps in the thread that trains (threads are a setting of the calling thread, too). It must never
set what nobody asked for, and reports what the getter says, never what was asked.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

from ...model.knobs import NO_EFFECT, SCRIPT, Value
from ..aside import Aside
from ..groups import Refused
from ..refusals import Refusal

MATMUL_CHOICES = ("highest", "high", "medium")
SIDE = 64
"""Of a matrix that is large enough for every kernel, and so small that none takes a block of weight to work in."""
COMPILED_ONCE_MORE = "code that is compiled compiles once more after it"
OTHER_SUMS = "not numerically neutral: sums come in another order"


class Setter:
    """One setting. ``script`` is what was in force when it was first set, None while nobody has."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Value],
        write: Callable[[Any], None],
        limit: Callable[[], Refusal],
        examine: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._read = read
        self._write = write
        self.limit = limit
        self._examine = examine
        self.script: Value | None = None
        self.asked: Value | None = None

    def read(self) -> Value | None:
        """What is in force, or None where torch will not say (its new and old settings were mixed)."""
        try:
            return self._read()
        except RuntimeError:
            return None

    def value_of(self, value: Value) -> Value:
        """``value`` with ``script`` resolved; raises Refused where this cannot be set."""
        limit = self.limit()
        if value == SCRIPT:
            return self.script if self.script is not None else self._known()
        if not limit.can:
            raise Refused(limit.reason or "%s cannot be set here" % self.name)
        self._known()
        self._examine()
        return value

    def _known(self) -> Value:
        value = self.read()
        if value is None:
            raise Refused("the script sets %s by torch's newer settings, and torch forbids mixing the two" % self.name)
        return value

    def set(self, value: Value) -> None:
        """In force from here on; raises Refused. ``script`` puts back what was found before the first set."""
        wanted, before = self.value_of(value), self._known()
        if self.script is None:
            if value == SCRIPT:
                return
            self.script = before
        self.asked = None if value == SCRIPT else wanted
        if wanted != before:
            self._write(wanted)

    def stands(self, value: Value) -> bool:
        """Whether setting ``value`` now would change nothing: it was asked for before, and nobody has set another."""
        return self.asked is None if value == SCRIPT else self.asked == value and not self.overruled

    @property
    def overruled(self) -> bool:
        """Whether the script has set it again since."""
        return self.asked is not None and self.read() != self.asked


def threads(torch: Any) -> Setter:
    """Threads that one operation may use on the CPU."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    openmp = "openmp" in torch.__config__.parallel_info().lower()

    def limit() -> Refusal:
        if not openmp:
            return Refusal(can=False, can_now=False, reason="this torch was built without OpenMP")
        notes = [OTHER_SUMS]
        if torch.get_num_threads() > usable:
            notes.append("more than the %d CPUs this process may use" % usable)
        if compiles():
            notes.append(COMPILED_ONCE_MORE)
        return Refusal(note="; ".join(notes))

    return Setter("threads", torch.get_num_threads, torch.set_num_threads, limit)


def matmul(torch: Any, device_type: Callable[[], str]) -> Setter:
    """How exactly float32 matrices are multiplied; ``device_type`` says where the model is, ``""`` for not known."""
    effect: dict[str, bool] = {}

    def examine() -> None:
        """Only once somebody asks: it sets the precision for a moment."""
        if device_type() == "cpu" and "cpu" not in effect:
            effect["cpu"] = changes_products(torch)

    def limit() -> Refusal:
        device = device_type()
        if device == "cpu" and not effect.get(device, True):
            return Refusal(note=NO_EFFECT + "this CPU multiplies float32 exactly either way")
        if device == "cuda" and torch.cuda.get_device_capability() < (8, 0):
            return Refusal(note=NO_EFFECT + "this GPU has no TF32")
        return Refusal(note=COMPILED_ONCE_MORE if compiles() else None)

    return Setter("matmul", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, limit, examine)


def compiles() -> bool:
    """Whether this process has compiled anything (Dynamo is imported late, when it is first needed)."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters["stats"]["unique_graphs"])


def changes_products(torch: Any) -> bool:
    """Whether the CPU multiplies otherwise under a lower precision: tried on two small matrices, then put back.

    Nothing is drawn from a generator for it.
    """
    before = torch.get_float32_matmul_precision()
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        room = functools.partial(Aside(torch).empty, dtype=torch.float32, size=4 * SIDE * SIDE)
        left = torch.linspace(0.1, 1.7, SIDE * SIDE, out=room(SIDE * SIDE), device="cpu").sin_().view(SIDE, SIDE)
        products = []
        try:
            for precision in MATMUL_CHOICES:
                torch.set_float32_matmul_precision(precision)
                products.append(torch.mm(left, left, out=room((SIDE, SIDE))))
        finally:
            torch.set_float32_matmul_precision(before)
    return any(not torch.equal(products[0], product) for product in products[1:])

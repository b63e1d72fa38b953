"""Autocast on a CPU that makes each step several times slower: found within a few steps, so that nobody waits it out.

Called by ``trials`` in the training's thread. A CPU without the instructions emulates them, and its flags do not tell
how well: a whole trial may then take hours. On a device that runs on by itself our clocks see nothing of it, so it is
for CPUs alone; and for autocast alone, since compiling is slow at first by its nature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ...model.knobs import SCRIPT, Value
from ..recorder import Recorder
from .autocast import OFF

FACTOR = 3.0
STEPS = 5
LEAST_NS = 1_000_000_000
"""So many in a row and more, after the first, each took ``FACTOR`` times what one did before, for so long in all: no
passing load does that, nor what a kernel prepares when it first sees a size. Where steps are short, nobody waits."""
LOOKS = STEPS + 1
"""Looks, about a second apart, over which it is known what a step took before."""


class Slower:
    """``words``: what was found, until another change begins."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._looks: deque[tuple[int, int]] = deque(maxlen=LOOKS)
        self._before_ns = 0.0
        self._at: tuple[int, int] | None = None
        self._since_ns = 0
        self._quickest_ns = 0.0
        self._counted = 0
        self.words: str | None = None

    def _now(self) -> tuple[int, int] | None:
        """The step that has ended last, and what was spent in forward and backward up to its end."""
        base = self._recorder.base or self._recorder.rest  # that is all there is between two epochs
        return None if base is None or base.step is None else (base.step, base.forward_ns + base.backward_ns)

    def look(self) -> None:
        """About once a second: what a step takes as it is."""
        now = self._now()
        if now is not None and (not self._looks or self._looks[-1][0] < now[0]):
            self._looks.append(now)

    def begin(self, kernels: Mapping[str, Value]) -> None:
        """A change lands. Of any other than autocast alone nothing is said."""
        self.words = self._at = None
        now, first = self._now(), self._looks[0] if self._looks else None
        self._looks.clear()
        if now is None or first is None:
            return
        steps, spent = now[0] - first[0], now[1] - first[1]
        if set(kernels) == {"autocast"} and kernels["autocast"] not in (SCRIPT, OFF) and steps >= STEPS and spent > 0:
            self._before_ns, self._at, self._since_ns = spent / steps, now, now[1]
            self._quickest_ns, self._counted = float("inf"), -1

    def at_step(self) -> None:
        """A step has ended."""
        if self._at is None:
            return
        now = self._now()
        if now is None or now[0] <= self._at[0]:
            return
        if self._counted >= 0:
            self._quickest_ns = min(self._quickest_ns, (now[1] - self._at[1]) / (now[0] - self._at[0]))
        self._at = now
        self._counted += 1
        if self._quickest_ns <= FACTOR * self._before_ns:
            self._at = None  # one that was quick enough: it is measured like any other
        elif self._counted >= STEPS and now[1] - self._since_ns >= LEAST_NS:
            self._at = None
            took = (self._quickest_ns / 1e6, self._before_ns / 1e6)
            self.words = "forward and backward take %.3g ms a step and more, instead of %.3g ms" % took

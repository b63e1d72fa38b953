"""A random generator of the script's own, given to ``cockpit.session``, as something with a state.

Used by ``session``, in the script's copy of this package and in the probe's. What the first lines of a later process
draw from it is drawn again: where the loop begins it stands where the last process has left it.
"""

from __future__ import annotations

from typing import Any, Callable

KINDS: tuple[tuple[str, str], ...] = (("get_state", "set_state"), ("getstate", "setstate"))
"""torch's and NumPy's older ones, and Python's. NumPy's newer ones have a ``bit_generator``, which has a ``state``."""


class Drawn:
    """One of them; ``take`` and ``put`` are its own."""

    of_cockpit = True
    """Known by this: the class itself may be there twice."""

    def __init__(self, take: Callable[[], Any], put: Callable[[Any], Any]) -> None:
        self._take, self._put = take, put
        self._state: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._take()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = state["state"]
        self._put(self._state)

    def goes_on(self) -> None:
        """The loop begins."""
        if self._state is not None:
            self._put(self._state)
            self._state = None


def stateful(thing: Any) -> Any:
    """``thing``, or what stands for it where it is a generator."""
    if callable(getattr(thing, "state_dict", None)):
        return thing
    for take, put in KINDS:
        if callable(getattr(thing, take, None)) and callable(getattr(thing, put, None)):
            return Drawn(getattr(thing, take), getattr(thing, put))
    bits: Any = getattr(thing, "bit_generator", None)
    if isinstance(getattr(bits, "state", None), dict):
        return Drawn(lambda: bits.state, lambda state: setattr(bits, "state", state))
    return thing


def go_on(things: dict[str, Any]) -> None:
    """All that are among ``things``."""
    for thing in things.values():
        if getattr(type(thing), "of_cockpit", False):
            thing.goes_on()

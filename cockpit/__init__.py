"""Cockpit: turn the knobs of a running, unmodified PyTorch training.

This file stays empty of work: it is imported inside the training too, by any Python from 3.9 on. ``session`` is the one
thing in here that a script may call.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .probe.handoff.session import Session

    class Stateful(Protocol):
        """Anything that gives its state and takes it back: a model, an optimizer, a scheduler, a scaler."""

        def state_dict(self) -> Any: ...

        def load_state_dict(self, state: Any, /) -> Any: ...

    class TorchsGenerator(Protocol):
        """``torch.Generator``, or an ``numpy.random.RandomState``."""

        def get_state(self) -> Any: ...

        def set_state(self, state: Any, /) -> Any: ...

    class PythonsGenerator(Protocol):
        """``random.Random``."""

        def getstate(self) -> Any: ...

        def setstate(self, state: Any, /) -> Any: ...

    class NumpysGenerator(Protocol):
        """``numpy.random.default_rng()``."""

        @property
        def bit_generator(self) -> Any: ...


def session(**things: Stateful | TorchsGenerator | PythonsGenerator | NumpysGenerator) -> Session:
    """Lets this training go on in a new process when cockpit restarts it; does nothing without cockpit.

    Give it everything whose state must survive: ``cockpit.session(model=model, optimizer=optimizer)``, random
    generators of your own, too. After a hot restart all of it is restored here; loop over ``run.epochs(n)`` then, which
    begins where the last process stopped.
    """
    from .probe.handoff.session import begin

    return begin(things)

"""What a script calls: ``cockpit.session(model=…)`` and the loop over ``run.epochs(n)``.

Outside a run of cockpit's nothing happens: ``epochs(n)`` is ``range(n)``. In a training it goes to the probe, which
lives under a private name and may be another copy of this package. It imports no torch; only a misuse raises.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ...model.counts import counted
from ...model.errors import CockpitError
from ...model.names import ENV_LIFE, NOT_RESTORED, PRIVATE
from .claim import goes_on_without_us
from .generators import go_on, stateful
from .telling import tell

LIVE: list[Any] = []
"""The probe's ``Handoff`` of this process, put there by ``install``; only ever in the private copy."""


class SessionError(CockpitError):
    """The script uses ``cockpit.session`` in a way that cannot work; the sentence says how it could."""


class Session:
    """A training that can go on in a new process.

    ``restored`` is how many epochs were done when the hand-off was written that this process goes on from, or None;
    ``step`` how many steps, 0 where nothing was restored.
    """

    def __init__(self, live: Any = None, things: dict[str, Any] | None = None) -> None:
        self.restored: int | None = None
        self.step = 0
        self.things = things or {}
        self.place: tuple[str, int] | None = None
        """File and line where ``epochs`` was called."""
        self._live = live
        self._asked = False

    def epochs(self, n: int) -> Sequence[int]:
        """``range(n)``; whoever goes through it after a hot restart begins where the last process stopped. Call it
        once: each epoch ends where the next is asked for, and there a hand-off may be written."""
        if self._asked:
            raise SessionError("run.epochs(n) was called twice: call it once, with the number of all epochs")
        self._asked = True
        whole = range(n)
        if self._live is None:
            return whole
        frame = sys._getframe(1)
        self.place = frame.f_code.co_filename, frame.f_lineno
        first = self.restored or 0
        if first > len(whole):
            self._live.leave(
                "%s done at the hand-off, and run.epochs(%d) asks for fewer: ask for %d or more"
                % (counted(first, "epoch was", "epochs were"), n, first)
            )
        return Epochs(self._live, self, whole, first)

    def __repr__(self) -> str:
        return "<cockpit session of %s>" % (", ".join(self.things) or "nothing")


class Epochs(Sequence[int]):
    """As ``range(n)`` in all that a script may ask of it, so that what works without cockpit works with it; only that
    going through it begins at ``first``, and that a part of it (a slice, or a second time) is no more than a range."""

    def __init__(self, live: Any, session: Session, whole: range, first: int) -> None:
        self._live = live
        self._session: Session | None = session
        self._whole, self._first = whole, first
        self.start, self.stop, self.step = whole.start, whole.stop, whole.step

    def __getitem__(self, at: Any) -> Any:
        return self._whole[at]

    def __len__(self) -> int:
        return len(self._whole)

    def __contains__(self, item: object) -> bool:
        return item in self._whole

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._whole)

    def __eq__(self, other: object) -> bool:
        return self._whole == (other._whole if isinstance(other, Epochs) else other)

    def __hash__(self) -> int:
        return hash(self._whole)

    def __repr__(self) -> str:
        return repr(self._whole)

    def index(self, value: int, *within: int) -> int:
        return super().index(value, *within) if within else self._whole.index(value)

    def count(self, value: int) -> int:
        return self._whole.count(value)

    def __iter__(self) -> Iterator[int]:
        session, self._session = self._session, None
        return iter(self._whole) if session is None else self._through(session)

    def _through(self, session: Session) -> Iterator[int]:
        live, left = self._live, self._whole[self._first :]
        live.begun(session, left)
        go_on(session.things)
        try:
            for epoch in left:
                yield epoch
                live.boundary(session, epoch + 1)
        finally:
            live.over()


def begin(things: dict[str, Any]) -> Session:
    """The session of this process. Raises SessionError where the script cannot have meant that."""
    if not things:
        raise SessionError(
            "cockpit.session() was given nothing: name what is to go on, model=model, optimizer=optimizer"
        )
    things = {name: stateful(thing) for name, thing in things.items()}
    for name, thing in things.items():
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(thing, method, None)):
                raise SessionError(
                    "cockpit.session(%s=…) needs something with state_dict() and load_state_dict(), and %s has no %s"
                    % (name, type(thing).__name__, method)
                )
    private = sys.modules.get(PRIVATE + ".probe.handoff.session")
    live = private.LIVE if private is not None else ()
    life = os.environ.get(ENV_LIFE)
    if not live and life and goes_on_without_us(life):
        tell("the probe is not here, so nothing can be restored; the training ends here rather than begin anew")
        raise SystemExit(NOT_RESTORED)
    session: Session = live[0].open(things) if live else Session()
    return session

"""After the hand-over: another process is this training now, and this one has nothing left to do but to end.

It ends as a script ends, by an exception (``HandedOver``, a SystemExit), so that its own endings and those of its
libraries run. A bare ``except:`` round the loop catches that, and what stands behind the loop would go on: a last
save, an evaluation, another loop. So it is raised again, where the script next trains, saves or calls a model; and that
it was caught is told. Nothing of this is in place before, so no step pays for it. It must leave alone what belongs to
the ending: ``finally`` and ``except`` blocks, context managers, what runs at exit, other threads.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from typing import Any, Callable, NoReturn

from ..guard import Guard
from ..recorder import Recorder
from .telling import tell

HELD = (
    "this training goes on in another process, and the end of this one was caught (%s): it ends at its next save, step"
    " or call of a model"
)


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class HandedOver(SystemExit):
    """Another process goes on with this training. ``caught`` is told where in the script it was dropped, if it was."""

    caught: Callable[[str], None] | None = None

    def __del__(self) -> None:
        caught, self.caught = self.caught, None
        if caught is None:
            return
        try:
            frame = sys._getframe(1)
        except (ValueError, AttributeError, TypeError):
            return  # Python itself lets go of it: the script is through
        ours = frame.f_code.co_filename.startswith(_OURS)  # it was kept for a while, and is collected somewhere
        caught("in its script" if ours else "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno))


class Away:
    """``held`` is told where the end was caught, or what was about to follow; once."""

    def __init__(self, torch: Any, recorder: Recorder, guard: Guard, held: Callable[[str], None]) -> None:
        self._torch, self._recorder, self._guard, self._held = torch, recorder, guard, held
        self._told = self._ends = False
        self._pid: int | None = None
        self._threads: tuple[int | None, ...] = ()

    def leave(self) -> NoReturn:
        """In the thread of the loop, at the end of its epoch."""
        self._pid = os.getpid()
        self._threads = (threading.get_ident(), threading.main_thread().ident)
        atexit.register(self._at_exit)
        for name, part in self._places().items():
            self._guard.run("leaving " + name, part)
        over = HandedOver(0)
        over.caught = self._tell
        try:
            raise over
        finally:
            del over  # else it would hold itself, by way of this frame

    def _at_exit(self) -> None:
        self._ends = True

    def _places(self) -> dict[str, Callable[[], None]]:
        """What puts ``check`` before each thing that a training does, by name: each may be missing on its own."""
        torch = self._torch

        def save() -> None:
            self._recorder.away = self.check  # whoever did "from torch import save" has it, too

        def model() -> None:
            torch.nn.Module.__call__ = self._checked(torch.nn.Module.__call__, "a model's call")

        def loader() -> None:
            loader = sys.modules["torch.utils.data.dataloader"].DataLoader
            loader.__iter__ = self._checked(loader.__iter__, "a loader's next epoch")

        def batch() -> None:
            iterator = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
            iterator.__next__ = self._checked(iterator.__next__, "a loader's next batch")

        def backward() -> None:
            torch.autograd.backward = self._checked(torch.autograd.backward, "a backward")

        def step() -> None:
            module = sys.modules["torch.optim.optimizer"]
            module.register_optimizer_step_pre_hook(lambda *_: self.check("an optimizer's step"))

        return {"save": save, "model": model, "loader": loader, "batch": batch, "backward": backward, "step": step}

    def _checked(self, original: Any, what: str) -> Any:
        is_compiling, check = self._recorder.is_compiling, self.check

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                check(what)
            return original(*args, **kwargs)

        return replacement

    def check(self, what: str) -> None:
        """Ends this process once more, unless ``what`` is done by its ending."""
        if self._ends or os.getpid() != self._pid or threading.get_ident() not in self._threads or _ends_now():
            return
        self._tell(what)
        raise HandedOver(0)

    def _tell(self, where: str) -> None:
        if not self._told and not self._ends and os.getpid() == self._pid:
            self._told = True
            self._guard.run("leaving", tell, HELD % where)
            self._guard.run("leaving", self._held, where)


def _ends_now() -> bool:
    """Whether this thread is in a block that the exception has opened: it is being dealt with further out."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, HandedOver):
            return True
        error = error.__context__
    return False

"""``run_screen``: opens the screen of one run on this terminal, and leaves the terminal as it was.

Called by ``cockpit run`` and ``attach``. It must never be needed by the training: whatever happens here, that goes
on. Textual is imported inside, after the environment has been read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from cockpit.model.errors import CockpitError

from .feed import Line
from .terminal import terminal_of, why_not

DETACHED = "detached"


def run_screen(
    socket_path: Path,
    data_dir: Path,
    *,
    glyphs: str | None = None,
    readonly: bool = False,
    revive: Callable[[], None] | None = None,
) -> str:
    """Show the run behind ``socket_path`` until the person leaves: ``detached``, or ``ended`` with the training.

    ``revive`` starts the run's engine again when it is gone (called from a thread). Raises CockpitError where this
    is no terminal, or where the screen broke.
    """

    async def connect() -> Line:
        from cockpit.history.link import Link

        return await Link.connect(socket_path)

    return show(connect, data_dir, glyphs=glyphs, readonly=readonly, revive=revive)


def show(
    connect: Callable[[], Awaitable[Line]],
    data_dir: Path,
    *,
    glyphs: str | None = None,
    readonly: bool = False,
    revive: Callable[[], None] | None = None,
) -> str:
    """``run_screen`` with any link to an engine: tests and demonstrations bring a scripted one."""
    refusal = why_not(sys.stdin.isatty(), sys.stderr.isatty(), os.environ.get("TERM", ""))
    if refusal:
        raise CockpitError(refusal)
    terminal = terminal_of(dict(os.environ), sys.stderr.encoding, glyphs)
    if terminal.color_system is not None:
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", terminal.color_system)
    for stale in ("COLUMNS", "LINES"):  # believed before the terminal itself, and then no resize is ever seen
        os.environ.pop(stale, None)

    # Textual reads the environment when it is imported
    from .cockpit import Cockpit
    from .hangup import HangUp

    app = Cockpit(connect, data_dir, terminal, readonly=readonly, revive=revive)
    with HangUp(app.leave_from_outside):
        how = app.run(mouse=False)
    if app.return_code:
        raise CockpitError("the screen broke, the training goes on: cockpit attach shows it again")
    return how or DETACHED

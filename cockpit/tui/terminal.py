"""What this terminal can show, decided once from the environment, before Textual is imported. Pure.

Called by ``run_screen``. The mouse is left to the terminal (nothing is clicked here, so text can be selected), and
nothing is animated: both cost bytes over a slow line.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.model.errors import UsageError

from .glyphs import SETS


@dataclass(frozen=True)
class Terminal:
    """``glyphs``: a name of a set. ``mono``: no colours. ``color_system``: what Textual is told where its own guess
    would be wrong; None: let it guess."""

    glyphs: str = "braille"
    mono: bool = False
    color_system: str | None = None


def terminal_of(environ: Mapping[str, str], encoding: str, glyphs: str | None = None) -> Terminal:
    """The terminal that ``environ`` and the encoding of its output describe; raises UsageError for unknown glyphs."""
    if glyphs is not None and glyphs not in SETS:
        raise UsageError(f"--glyphs {glyphs}: it takes {', '.join(SETS)}")
    name = environ.get("TERM", "")
    plain = name == "linux" or not is_utf8(encoding) or not is_utf8(encoding_of_locale(environ) or "utf-8")
    # GNU screen passes on a COLORTERM that it cannot draw
    screen = name.startswith("screen") and bool(environ.get("STY"))
    return Terminal(
        glyphs=glyphs or ("ascii" if plain else "braille"),
        mono=bool(environ.get("NO_COLOR")),
        color_system="256" if screen and environ.get("COLORTERM") else None,
    )


COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python puts into LC_CTYPE by itself where the locale was ``C``."""


def encoding_of_locale(environ: Mapping[str, str]) -> str | None:
    """The encoding that the locale names; None where no locale is set. Python itself says UTF-8 even for ``C``."""
    if environ.get("LC_CTYPE") in COERCED and environ.get("LANG") in ("C", "POSIX") and not environ.get("LC_ALL"):
        return "ascii"
    locale = next((value for key in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environ.get(key))), None)
    if locale is None:
        return None
    return locale.partition(".")[2].partition("@")[0] or "ascii"


def is_utf8(encoding: str) -> bool:
    """Whether text in this encoding may hold any character."""
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False


def why_not(stdin_tty: bool, stderr_tty: bool, term: str) -> str | None:
    """Why no screen can be drawn here, in one sentence; None: it can."""
    if not stdin_tty:
        return "the screen needs a terminal to read keys from, and stdin is none: use --headless"
    if not stderr_tty:
        return "the screen is drawn on stderr, and stderr is not a terminal: use --headless"
    if term in ("", "dumb"):
        return f"a terminal of the kind {term or 'unknown'!r} cannot show the screen: use --headless"
    return None

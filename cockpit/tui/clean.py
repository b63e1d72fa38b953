"""Child text as data: what the training printed, made safe for one line of our screen.

Called for every text that we did not write ourselves (output, script names, reasons, paths). No escape sequence,
control or undecodable byte may pass, whatever the training prints; nothing here ever raises.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS, SOS, PM, APC: to their end, or to the end of the text
    r"|\x1b[ -/]*[0-~]?"  # the rest
    r"|\x9b[0-?]*[ -/]*[@-~]",
    re.DOTALL,
)
# bidi overrides and line separators move other text around; lone surrogates cannot be written to a terminal
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)

LONGEST = 4000


def clean(text: str, longest: int = LONGEST) -> str:
    """One printable line: the last non-empty piece of a ``\\r`` bar, no escapes, tabs as spaces, cut at ``longest``."""
    # a megabyte line is cut before anything is searched in it
    text = text[-longest:] if "\r" in text[-longest:] else text[:longest]
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    pieces = [piece for piece in text.replace("\n", "\r").split("\r") if piece.strip()]
    return _CONTROLS.sub("\ufffd", (pieces[-1] if pieces else "").expandtabs(4))

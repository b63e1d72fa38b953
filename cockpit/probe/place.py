"""Where in the script something was made: ``train.py:41``. Called when a DataLoader is constructed; never per step."""

from __future__ import annotations

import os
import sys
from typing import Any

from .whose import is_installed

_OURS = os.path.dirname(os.path.abspath(__file__))
_DEEPEST = 64


def where(torch_folder: str, made: Any) -> str:
    """The innermost frame that is the user's own code: outside torch, outside installed packages, outside us.

    Where everything is installed code (a framework from end to end), the innermost frame outside torch.
    The ``__init__`` of a subclass of the user's is not where ``made`` is made, but what makes it.
    """
    frame = sys._getframe(1)
    fallback = "?"
    for _ in range(_DEEPEST):
        path = frame.f_code.co_filename
        own_init = frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is made
        if not own_init and not path.startswith((torch_folder, _OURS, "<cockpit", "<frozen")):
            name = "%s:%d" % (os.path.basename(path), frame.f_lineno)
            if not is_installed(path):
                return name
            if fallback == "?":
                fallback = name
        if frame.f_back is None:
            break
        frame = frame.f_back
    return fallback


def made_by_installed_code(torch_folder: str) -> bool:
    """Whether the innermost frame outside torch and us is an installed package's: no line of the user's made this."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((torch_folder, _OURS, "<cockpit", "<frozen")):
        frame = frame.f_back
    return frame is not None and is_installed(frame.f_code.co_filename)

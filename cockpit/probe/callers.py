"""Whose code is calling: which installed package iterates a loader right now, and who has asked for its length.

Called by ``batching`` in the script's thread, a few times an epoch. It looks at frames alone, and keeps none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from .lengths import Asker

_DEEPEST = 64
_BARS = ("tqdm", "rich", "click", "progressbar", "alive_progress")
"""Progress bars hand on what the loop asks for, and count nothing for it."""
_FRAMEWORKS = ("lightning", "pytorch_lightning", "transformers", "accelerate", "ignite", "fastai", "composer")
"""Known even where they run from a checkout, and are installed nowhere."""


def framework_of(torch_folder: str, ours: str) -> str | None:
    """The installed package whose code iterates the loader right now (called from ``__iter__``), or None: the
    script's own loop. torch's and our own frames do not count, nor the package that is itself the script. Of several
    it is the one that the script called."""
    found = None
    for frame in _frames_outside(ours):
        if frame.f_code.co_filename.startswith(torch_folder):
            continue
        package = _package_of(frame)
        if package is None or package == _main_package():
            break
        if package not in _BARS:
            found = package
    return found


def asker_of(torch_folder: str, ours: str) -> Asker | None:
    """Who has just called ``len(loader)``; None: torch itself."""
    for frame in _frames_outside(ours):
        path = frame.f_code.co_filename
        if path.startswith(torch_folder):
            return None
        return Asker.of(_package_of(frame), path, frame.f_lineno)
    return None


def is_bar(asker: str) -> bool:
    """Whether it draws progress, and decides nothing."""
    return asker in _BARS


def _frames_outside(ours: str) -> Iterator[Any]:
    """The frames of the calling thread, innermost first, without the probe's own."""
    frame: Any = sys._getframe(1)
    for _ in range(_DEEPEST):
        if not frame.f_code.co_filename.startswith((ours, "<cockpit", "<frozen")):
            yield frame
        if frame.f_back is None:
            return
        frame = frame.f_back


def _package_of(frame: Any) -> str | None:
    """The package that the code of ``frame`` belongs to, where it is installed or a known framework."""
    for folder in ("site-packages", "dist-packages"):
        _, found, rest = frame.f_code.co_filename.partition(folder + os.sep)
        if found:
            return str(rest.split(os.sep)[0])
    top = str(frame.f_globals.get("__name__", "")).split(".")[0]
    return top if top in _FRAMEWORKS else None


def _main_package() -> str | None:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(spec.name).split(".")[0] if spec is not None else None

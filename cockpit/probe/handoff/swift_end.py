"""The end of a process that has handed over, without Python's search for rubbish in all that torch has made.

Called by the probe as its last act at exit. Three times Python looks through every object then, for those in cycles
that have something to do when they go; with torch that takes longer than all else in a hot restart, and its next
process waits for it. Where nothing is alive that has anything to do, the search is spared. It must never cost a
finaliser: an open file, a suspended generator, a ``__del__`` of anybody's, or a library whose objects cannot be seen
into, and Python ends as it always does.
"""

from __future__ import annotations

import gc
import sys
from types import GeneratorType, ModuleType
from typing import Any

NOTHING_TO_DO = {
    "torch.multiprocessing.reductions.StorageWeakRef",  # its memory is the process's
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter",  # by its first line, not once Python ends
    "multiprocessing.connection.Connection",  # closes, and keeps nothing back
    "_io.BytesIO",
    "_io.StringIO",
}
TORCHS = ("/torch/utils/data/sampler.py", "/torch/utils/data/dataloader.py")
"""Generators of these wait in workers that persist, and have nothing to do either."""
KNOWN = {"torch", "triton", "cuda", "numpy", "PIL", "torchvision", "scipy", "yaml", "regex", "markupsafe", "psutil"}
"""Libraries with native code whose objects hold memory and nothing that would be written when they go."""


def spare_search() -> bool:
    """Whether it was: the objects of now are taken out of the collector's sight (``gc.freeze``)."""
    if _unknown_libraries() or _has_endings():
        return False
    gc.freeze()
    return True


def _unknown_libraries() -> bool:
    # Python 3.9 does not tell its own: everything is unknown there
    own: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if str(file).endswith(".so") and name.partition(".")[0] not in own | KNOWN:
            return True
    return False


def _has_endings() -> bool:
    alive = gc.get_objects()
    kinds = {kind for kind in set(map(type, alive)) if _ends(kind)}
    quiet = _standard()
    return any(type(each) in kinds and id(each) not in quiet and not _is_torchs(each) for each in alive)


def _ends(kind: type) -> bool:
    """Generators and files have it, too, in C."""
    name = "%s.%s" % (kind.__module__, kind.__qualname__)
    return name not in NOTHING_TO_DO and any("__del__" in vars(base) for base in kind.__mro__)


def _is_torchs(each: Any) -> bool:
    return isinstance(each, GeneratorType) and each.gi_code.co_filename.endswith(TORCHS)


def _standard() -> set[int]:
    """The streams that Python flushes by itself, and what they are made of."""
    found: set[int] = set()
    for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
        part: Any = stream
        while part is not None and type(part).__module__ == "_io":
            found.add(id(part))
            part = getattr(part, "buffer", getattr(part, "raw", None))
    return found

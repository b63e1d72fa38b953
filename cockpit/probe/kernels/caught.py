"""Forward hooks of the script inside a trained module: under autocast they get tensors of lower precision.

Asked in the training's thread where a module is met or asked for, and every some seconds. It looks at torch's own
tables of hooks and runs nothing. What a module keeps on itself in its forward cannot be known.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

_TABLES = ("_forward_hooks", "_forward_pre_hooks")


def words_of(torch: Any, module: Any) -> str | None:
    """What is to be known before autocast is tried, or None."""
    hook = next(_hooks(torch, module), None)
    if hook is None:
        return None
    return "a forward hook of the script (%s) gets tensors of lower precision in training" % place_of(hook)


def _hooks(torch: Any, module: Any) -> Iterator[Any]:
    """Those of the script on ``module`` and what it is made of, and on all modules; torch's own do not count."""
    everywhere = torch.nn.modules.module
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
        yield from filter(_is_scripts, list(getattr(everywhere, name, {}).values()))
    for part in module.modules():
        for name in _TABLES:
            table = part.__dict__.get(name)
            if table:
                yield from filter(_is_scripts, list(table.values()))


def _is_scripts(hook: Any) -> bool:
    made_by = getattr(_function(hook), "__module__", None) or type(hook).__module__
    return str(made_by).split(".")[0] not in ("torch", "_training_cockpit", "cockpit")


def _function(hook: Any) -> Any:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return getattr(hook, "__func__", hook)


def place_of(hook: Any) -> str:
    """``train.py:8``, or what it is called."""
    code = getattr(_function(hook), "__code__", None)
    if code is None:
        return type(hook).__name__
    return "%s:%d" % (os.path.basename(code.co_filename), code.co_firstlineno)

"""What a script may tell torch itself in the middle of its training: a table of getters and setters.

Read by ``unsaid``. Reading one must initialise no device and change nothing; what this torch lacks is left out.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple

from ..guard import attempt


class Setting(NamedTuple):
    """How one is read and set; either may raise."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


FUNCTIONS = {
    "default dtype": ("get_default_dtype", "set_default_dtype"),
    "gradients": ("is_grad_enabled", "set_grad_enabled"),
    "matmul": ("get_float32_matmul_precision", "set_float32_matmul_precision"),
    "threads": ("get_num_threads", "set_num_threads"),
    "anomaly detection": ("is_anomaly_enabled", "autograd.set_detect_anomaly"),
    "flash attention": ("backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp"),
    "memory efficient attention": ("backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp"),
    "plain attention": ("backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp"),
}
ATTRIBUTES = {
    "cudnn.benchmark": "backends.cudnn",
    "cudnn.deterministic": "backends.cudnn",
    "cudnn.enabled": "backends.cudnn",
}


def settings_of(torch: Any) -> dict[str, Setting]:
    """By the name that a person may read."""
    found: dict[str, Setting] = {}
    for name, (read, write) in FUNCTIONS.items():
        pair = [attempt(_at, torch, path)[0] for path in (read, write)]
        if all(pair):
            found[name] = Setting(*pair)
    for name, path in ATTRIBUTES.items():
        owner, attribute = attempt(_at, torch, path)[0], name.rpartition(".")[2]
        if hasattr(owner, attribute):
            get, put = functools.partial(getattr, owner, attribute), functools.partial(setattr, owner, attribute)
            found[name] = Setting(get, put)
    if hasattr(torch, "is_deterministic_algorithms_warn_only_enabled"):
        found["deterministic algorithms"] = Setting(
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda pair: torch.use_deterministic_algorithms(pair[0], warn_only=pair[1]),
        )
    return found


def _at(torch: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), torch)

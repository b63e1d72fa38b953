"""Whether a model is being written down by ``torch.jit``: for a file, an ONNX export, a picture. Nobody trains by that,
and what is in force in the training has no place in it.
"""

from __future__ import annotations

import sys
from typing import Any


def is_traced(torch: Any) -> bool:
    """While its operations are recorded, and while torch compares the record with the model itself."""
    if torch._C._get_tracing_state() is not None:
        return True
    return getattr(sys.modules.get("torch.jit._trace"), "_trace_module_map", None) is not None


def let_script() -> None:
    """``torch.jit.script`` takes attributes of an instance for the model's own: not our slot, which it cannot type."""
    sys.modules["torch.jit._recursive"].ignored_attributes.append("_compiled_call_impl")

"""Whether the script differentiates its gradients once more (gradient penalties, Hessians): compiled code cannot.

Told by a hook round ``torch.autograd.grad``; asked before ``compile`` is changed. It looks at results and keeps none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AGAIN = "the script differentiates its gradients once more (create_graph=True), which torch cannot do in compiled code"


class Twice:
    """``seen``: a gradient came back that can itself be differentiated. Those inside ``torch.func`` do not count: there
    every one can."""

    def __init__(self, torch: Any) -> None:
        functorch = getattr(torch._C, "_functorch", None)
        self._is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", lambda _: False)
        self.seen = False

    def entering(self, *_: Any) -> bool | None:
        """Entry of ``torch.autograd.grad``; None once there is nothing more to learn."""
        return None if self.seen else True

    def left(self, token: bool, result: Any, error: BaseException | None) -> None:
        """Its result, or how it failed."""
        gradients = result.values() if isinstance(result, Mapping) else result or ()
        self.seen = any(getattr(each, "requires_grad", False) and not self._is_wrapped(each) for each in gradients)

    def reason(self, module: Any) -> str | None:
        """Why ``module`` had better not be compiled, or None; also by what ``backward(create_graph=True)`` left."""
        kept = any(p.grad is not None and p.grad.requires_grad for p in module.parameters())
        return AGAIN if self.seen or kept else None

"""Autocast round one forward, and the script's own ``torch.autocast`` under our value where the script places it.

Entered by ``root`` for each call of a trained module and left before the loss outside, so that gradients and
optimizer never run in it. It must never touch an island (``enabled=False`` inside an enabled region: the model says
that this part needs float32), nor an evaluation (what is caught there goes to numpy), and costs nothing until
autocast was asked for.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable

from ..groups import Refused
from ..guard import UNSEEN, disguise
from .snapshot import scalers

OFF, BF16, FP16 = "off", "bf16", "fp16"
CHOICES = (OFF, BF16, FP16)


def dtype_of(torch: Any, word: str) -> Any:
    """The dtype of ``bf16`` or ``fp16``, None for ``off``."""
    return {BF16: torch.bfloat16, FP16: torch.float16}.get(word)


def word_of(torch: Any, device: str) -> str:
    """What autocast does on ``device`` at this point of this thread."""
    if not torch.is_autocast_enabled(device):
        return OFF
    dtype = torch.get_autocast_dtype(device)
    return {torch.bfloat16: BF16, torch.float16: FP16}.get(dtype, str(dtype).rsplit(".", 1)[-1])


def inside_any(torch: Any) -> bool:
    """Whether this thread is inside any autocast, enabled or not."""
    return _depth(torch) > 0


def _depth(torch: Any) -> int:
    """So many regions are round this place. The count is only told by changing it."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def inside_backward(torch: Any) -> bool:
    """Whether this thread runs a backward, where checkpointing puts a region round what it computes again."""
    return bool(torch._C._current_graph_task_id() != -1)


def makes_a_graph() -> bool:
    """Whether the caller runs inside a ``torch.autograd.Function``: gradients are off there, and it is training."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount and code.co_varnames[0] == "ctx":
            return True
        frame = frame.f_back
    return False


class _Own(threading.local):
    """Of one thread. ``calls``: for each call of a root that is under way, whether it evaluates. ``regions``: by depth,
    the device of a region and what the script wanted there, where our value was put into it."""

    def __init__(self) -> None:
        self.calls: list[bool] = []
        self.regions: list[tuple[str, tuple[bool, Any] | None]] = []


class Places:
    """Round ``torch.autocast.__enter__``, and only while some value is asked for.

    ``wanted`` maps a device type to our word. A region that the script enters as enabled gets it; one entered as
    disabled only where no other region is round it and no root is being called: there it is a switch of the script
    that is off, else an island. Where the script evaluates, its regions are as it has them.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._folder = os.path.dirname(torch.__file__) + os.sep
        self._class = torch.amp.autocast_mode.autocast
        self._original: Callable[[Any], Any] = self._class.__enter__
        self._replacement = self._make()
        self.wanted: dict[str, str] = {}
        self._own = _Own()
        self.own_places = 0
        """Regions of the script that our value was put into."""

    def want(self, device: str, word: str | None) -> None:
        """Every place of the script gets ``word`` from here on; None: its own again."""
        if word is None:
            self.wanted.pop(device, None)
        else:
            self.wanted[device] = word
        if self.wanted and self._class.__enter__ is self._original:
            self._own.regions.clear()
            self._class.__enter__ = self._replacement
        elif not self.wanted and self._class.__enter__ is self._replacement:
            self._class.__enter__ = self._original

    def ours(self, device: str, word: str) -> Any:
        """A region of our own, which the patch lets through."""
        return self._region(device, word != OFF, dtype_of(self._torch, word))

    def scripts(self, device: str) -> Any:
        """A region as the script wanted the one that is in force here, or None: that one is as the script has it."""
        own, depth = self._own, _depth(self._torch)
        wanted = next((wanted for where, wanted in reversed(own.regions[:depth]) if where == device), None)
        return None if wanted is None else self._region(device, *wanted)

    def _region(self, device: str, enabled: bool, dtype: Any) -> Any:
        region = self._class(device, dtype=dtype, enabled=enabled)
        region._cockpit = True
        return region

    def evaluate(self) -> bool:
        """Whether what runs now is no part of the training: gradients are off, in no forward of it."""
        calls = self._own.calls
        return calls[-1] if calls else not self._torch.is_grad_enabled() and not makes_a_graph()

    def called(self) -> bool:
        """A root is called, until ``left``; whether it evaluates."""
        evaluates = self.evaluate()
        self._own.calls.append(evaluates)
        return evaluates

    def left(self) -> None:
        """The call is over."""
        self._own.calls.pop()

    def _placed_by_script(self, frame: Any) -> bool:
        """torch enters autocast itself, to run something again as it was (checkpointing, ``custom_bwd``)."""
        while frame is not None and frame.f_code.co_name in ("__enter__", "decorate_autocast"):
            frame = frame.f_back  # the older torch.cuda.amp.autocast calls its parent's; a decorated function
        return frame is None or not frame.f_code.co_filename.startswith(self._folder)

    def _make(self) -> Any:
        torch, original, is_compiling = self._torch, self._original, self._torch.compiler.is_compiling

        def replacement(region: Any) -> Any:
            if is_compiling():
                return original(region)
            word = None if "_cockpit" in region.__dict__ else self.wanted.get(region.device)
            own = region._enabled, region.fast_dtype
            if (
                word is None
                or not self._placed_by_script(sys._getframe(1))
                or (not region._enabled and (self._own.calls or inside_any(torch)))
                or self.evaluate()
            ):
                self._note(region.device, None)
                return original(region)
            region._enabled = word != OFF
            region.fast_dtype = dtype_of(torch, word) or region.fast_dtype
            self.own_places += 1
            self._note(region.device, own)
            try:
                return original(region)
            finally:
                region._enabled, region.fast_dtype = own

        disguise(replacement, original, UNSEEN)
        return replacement

    def _note(self, device: str, wanted: tuple[bool, Any] | None) -> None:
        """A region is about to be entered; what stood at its depth or deeper has been left."""
        regions, depth = self._own.regions, _depth(self._torch)
        del regions[depth:]
        regions += [("", None)] * (depth - len(regions)) + [(device, wanted)]  # the first were entered before us


def no_effect(torch: Any, module: Any) -> str | None:
    """Why autocast changes nothing in ``module``, or None. Looks at every parameter: ask seldom."""
    kinds = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if kinds and kinds <= {torch.bfloat16, torch.float16}:
        return "no effect: the model itself is %s already" % " and ".join(sorted(map(_short, kinds)))
    if torch.float64 in kinds:
        return "no effect: the model is in float64, which autocast leaves alone"
    return None


def check(torch: Any, module: Any, device: str, word: str) -> None:
    """Raises Refused where ``word`` cannot or need not be had for ``module``."""
    if word == OFF:
        return
    nothing = no_effect(torch, module)
    if nothing is not None:
        raise Refused(nothing)
    if not torch.amp.is_autocast_available(device):
        raise Refused("torch has no autocast for %s" % device)
    if device == "cuda" and word == BF16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise Refused("this GPU has no bf16 (torch would emulate it, slowly)")
    if word == FP16 and not scaler_in_use(torch):
        raise Refused("fp16 needs an enabled GradScaler in the script: without one small gradients become 0")


def scaler_in_use(torch: Any) -> bool:
    """Whether the script has an enabled GradScaler that has scaled a loss. Looks through all objects: ask seldom."""
    return bool(scalers(torch))


def _short(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]

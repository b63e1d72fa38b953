"""What can go wrong with the training's own work under a changed precision or compiled, and what then happens.

One row a fault, struck by ``trainers/kernel_faults.py`` and read by its end-to-end tests. ``wrong`` tells the README's
readers of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS = 12
"""Steps in an epoch of the trainer."""
DIES, SPOILT, GOES_ON = "dies", "spoilt", "goes on"
BACK = "back to the settings before; nothing is lost"
UNDONE = "back to the state before the change; said how many updates are lost"
ONE_STEP = "back to the settings before; one step's gradients counted as 0"
STANDS = "the change stands"


@dataclass(frozen=True)
class Fault:
    """``reason`` must stand in the ledger; None: the change stands. ``same``: every loss is that of the bare script.

    ``own``: how the bare script ends that sets the same itself. ``knob``: what is asked for in the third step.
    """

    name: str
    kind: str
    words: str
    reason: str | None
    ours: str = BACK
    own: str = DIES
    knob: str = "autocast=bf16"
    same: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False

    @property
    def sets(self) -> str:
        """What the script itself would set."""
        return "compile" if self.knob.startswith("compile") else "bf16"


KERNEL_FAULTS = (
    Fault("assign", "fails in a forward", "an assignment into a float32 tensor", "Index put requires"),
    Fault("assign-late", "fails in a forward", "… in a branch that comes some steps later", "forward ran twice",
          "back to the settings before; one forward ran twice", same=False),
    Fault("scatter", "fails in a forward", "`scatter_add_` into a float32 tensor", "scatter"),
    Fault("evaluating", "fails in a forward", "`.numpy()` of bfloat16, in an evaluation only", None,
          "the change stands: evaluations are as the script has them", same=False),
    Fault("backward", "fails in a backward", "an own autograd function without `custom_fwd`", "in backward", ONE_STEP,
          same=False),
    Fault("nan", "diverges", "the loss becomes nan", "loss became", UNDONE, SPOILT, same=False),
    Fault("nan-skipped", "diverges", "… and the script skips every update", "loss became", UNDONE, GOES_ON, same=False,
          alone=True),
    Fault("vanish", "diverges", "every gradient becomes 0", "all gradients became 0", UNDONE, GOES_ON, same=False),
    Fault("nan-once", "diverges", "one loss is nan, and the script skips it", None, STANDS, GOES_ON, same=False),
    Fault("nan-own", "diverges", "the loss was nan before the change", None, STANDS, SPOILT, same=False, alone=True),
    Fault("storm", "is compiled", "a number changes every step: torch's limit of recompilations", "recompiled",
          own=GOES_ON, knob="compile=default", same=False, alone=True),
    Fault("none", "is compiled", "the C++ compiler does not work", "C++", knob="compile=default", alone=True,
          env={"CXX": "false"}),
    Fault("none", "is compiled", "torch compiles nothing without saying so", "compiled nothing", own=GOES_ON,
          knob="compile=default", alone=True, env={"TORCHDYNAMO_DISABLE": "1"}),
)  # fmt: skip
TOGETHER = tuple(fault for fault in KERNEL_FAULTS if not fault.alone)

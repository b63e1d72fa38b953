"""The table of knobs: what each is called, which values it takes, what it does.

Read by the probe, the panel, the command line, the config file and the README; a new knob is a new row here.
It never says how a knob is applied (the probe does) nor what it gained (analysis does).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from .errors import UsageError

Value = Union[bool, int, str]
"""A knob's value as it travels: int, bool or word. ``"script"`` always means: as the script has it."""

NO_EFFECT = "no effect: "
"""How the reason of a change begins that is in force and changes nothing: there is nothing to compare then."""
SCRIPT = "script"
ENV = "env "
"""Begins the name of an environment variable in the ledger: only a hot restart can change one."""
RESTART, ANEW = "process", "started anew"
"""In the ledger: a hot restart that changes nothing else."""
UNSET = "(not set)"
"""As the value that is asked for of an environment variable: take it away."""


@dataclass(frozen=True)
class Knob:
    """One row: ``kind`` is ``int`` (from ``low`` upwards), ``switch`` (on/off) or ``choice`` (of ``choices``).

    ``room`` groups knobs that are applied together: all ``loader`` knobs are set as one coupled group, ``batch`` ones
    belong to a loader too and change what an epoch is made of, ``kernel`` knobs belong to the whole training.
    One key press moves an int by ``step``, or halves and doubles it where it ``grows`` so (``step`` or ``double``).
    ``help`` is one line for screen, help and docs.
    """

    name: str
    label: str
    kind: str
    room: str
    help: str
    low: int = 0
    high: int = 1024
    step: int = 1
    choices: tuple[str, ...] = ()
    grows: str = "step"


KNOBS: tuple[Knob, ...] = (
    Knob(
        "num_workers",
        "num_workers",
        "int",
        "loader",
        "processes that load ahead (0: none); random transforms draw anew",
    ),
    Knob(
        "prefetch_factor",
        "prefetch",
        "int",
        "loader",
        "batches that each worker keeps ready; needs workers",
        low=1,
    ),
    Knob(
        "pin_memory",
        "pin_memory",
        "switch",
        "loader",
        "load into page-locked memory, for faster copies to the GPU",
    ),
    Knob(
        "persistent_workers",
        "persistent",
        "switch",
        "loader",
        "keep the workers alive from one epoch to the next",
    ),
    Knob(
        "in_order",
        "in_order",
        "switch",
        "loader",
        "hand out batches in the sampler's order; off: whichever is ready",
    ),
    Knob(
        "batch_size",
        "batch_size",
        "int",
        "batch",
        "samples that one batch holds; changes at the epoch boundary",
        low=1,
        high=999_999,
        grows="double",
    ),
    Knob(
        "threads",
        "threads",
        "int",
        "kernel",
        "CPU threads that one operation of the training may use",
        low=1,
    ),
    Knob(
        "matmul",
        "matmul",
        "choice",
        "kernel",
        "precision of float32 matrix products; lower lets a GPU use TF32",
        choices=("highest", "high", "medium"),
    ),
    Knob(
        "autocast",
        "autocast",
        "choice",
        "kernel",
        "train in lower precision where that is safe; evaluation stays as it is",
        choices=("off", "bf16", "fp16"),
    ),
    Knob(
        "compile",
        "compile",
        "choice",
        "kernel",
        "torch.compile of the model, in place; the first step takes long",
        choices=("off", "default", "reduce-overhead", "max-autotune"),
    ),
)

BY_NAME: Mapping[str, Knob] = {knob.name: knob for knob in KNOBS}
LOADER_KNOBS: tuple[str, ...] = tuple(knob.name for knob in KNOBS if knob.room == "loader")
BATCH_KNOBS: tuple[str, ...] = tuple(knob.name for knob in KNOBS if knob.room == "batch")
KERNEL_KNOBS: tuple[str, ...] = tuple(knob.name for knob in KNOBS if knob.room == "kernel")

_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def nearest(name: str) -> str | None:
    """The known knob whose name begins with or is closest to ``name``, or None where none is close."""
    begun = [known for known in BY_NAME if len(name) > 1 and known.startswith(name.lower())]
    if len(begun) == 1:
        return begun[0]
    found = difflib.get_close_matches(name, list(BY_NAME), n=1, cutoff=0.5)
    return found[0] if found else None


def knob_named(name: str) -> Knob:
    """The knob called ``name``; raises UsageError with the nearest known name."""
    if name in BY_NAME:
        return BY_NAME[name]
    near = nearest(name)
    hint = "did you mean %r?" % near if near else "known: " + ", ".join(BY_NAME)
    raise UsageError("unknown knob %r: %s" % (name, hint))


def check_value(name: str, value: object) -> Value:
    """``value`` (already typed, from a file or a message) as this knob's value; raises UsageError."""
    knob = knob_named(name)
    if value == SCRIPT:
        return SCRIPT
    if knob.kind == "switch" and isinstance(value, bool):
        return value
    if knob.kind == "int" and isinstance(value, int) and not isinstance(value, bool) and knob.low <= value <= knob.high:
        return value
    if knob.kind == "choice" and isinstance(value, str) and value in knob.choices:
        return value
    raise UsageError("%s cannot be %s: it takes %s" % (name, show_value(value), takes(knob)))


def parse_value(name: str, text: str) -> Value:
    """``text`` as typed by a person (``4``, ``on``, ``script``) as this knob's value; raises UsageError."""
    knob = knob_named(name)
    word = text.strip().lower()
    value: object = word
    if knob.kind == "switch":
        value = _SWITCH.get(word, word)
    elif knob.kind == "int" and word.isascii() and word.isdigit() and len(word) < 8:
        value = int(word)
    return check_value(name, value)


def takes(knob: Knob) -> str:
    """What a knob accepts, in words, for messages and help."""
    words = {
        "int": "%d to %d" % (knob.low, knob.high),
        "switch": "on or off",
        "choice": ", ".join(knob.choices),
    }
    return words[knob.kind] + ", or script"


def show_value(value: object) -> str:
    """A value as people read it: on/off for booleans, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)

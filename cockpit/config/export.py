"""A setup in other tools' words: the line to paste into the script, or environment variables. Pure.

Called by ``cockpit export`` and by the screen's key. It says only what has the same effect without cockpit; a setting
that a form has no word for becomes a sentence, never a line that does something else.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cockpit.model.environment import must_come_first
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import SCRIPT, Value, show_value

from .assign import Wishes

LATER = ("accelerate", "transformers", "lightning")
"""Tools whose words we do not know yet."""

LOADER_ARGUMENTS = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "in_order",
)
"""Knobs that are arguments of ``DataLoader``, in the order in which people write them."""
NEED_WORKERS = ("prefetch_factor", "persistent_workers")

DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}


@dataclass(frozen=True)
class Export:
    """``lines`` to paste; ``notes`` are sentences about what they do not say."""

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


def export(wanted: Wishes, form: str, calls: Sequence[str] = ()) -> Export:
    """``wanted`` as ``python`` or ``env``. ``calls``: where the script makes its training loaders (``train.py:41``).

    Raises UsageError for another form, CockpitError where nothing of the setup can be said in it.
    """
    if form in LATER:
        raise UsageError(f"--to {form} comes with a later version: this one writes {', '.join(FORMS)}")
    if form not in FORMS:
        raise UsageError(f"--to {form}: it takes {', '.join(FORMS)}")
    if not wanted.knobs and not any(wanted.loaders.values()) and not wanted.environment:
        raise CockpitError("nothing to export: the setup leaves every knob as the script has it")
    found = FORMS[form](wanted, tuple(calls))
    if not found.lines:
        raise CockpitError("; ".join(found.notes))
    return found


def loader_call(knobs: Mapping[str, Value]) -> tuple[str | None, list[str]]:
    """``DataLoader(..., num_workers=4)`` for what is asked of a loader (None: nothing), and the sentences."""
    notes, arguments = [], []
    for name in LOADER_ARGUMENTS:
        value = knobs.get(name, SCRIPT)
        if value == SCRIPT:
            continue
        if name in NEED_WORKERS and knobs.get("num_workers") == 0:
            # the loader itself refuses these two without workers
            if value is not False:
                notes.append(f"{name} {show_value(value)} is left out: without workers it means nothing")
            continue
        arguments.append(f"{name}={value!r}")
    return (f"DataLoader(..., {', '.join(arguments)})" if arguments else None), notes


def _python(wanted: Wishes, calls: tuple[str, ...]) -> Export:
    lines, notes = _variables(wanted.environment)
    more_lines, more = _torch_lines(wanted.knobs)
    lines += more_lines
    notes += more + _as_script(wanted.knobs)
    call, more = loader_call(wanted.knobs)
    notes += more
    if call:
        where = " and ".join(calls) or "the training loader"
        lines.append(f"{call}  # {where}")
    for loader, own in wanted.loaders.items():
        # what is asked of one loader comes on top of what is asked of all
        call, more = loader_call({**_loader_part(wanted.knobs), **own})
        notes += more + _as_script(own, f" for {loader}")
        if call:
            lines.append(f"{call}  # {loader}")
    return Export(tuple(lines), tuple(notes))


def _variables(environment: Mapping[str, str | None]) -> tuple[list[str], list[str]]:
    """Torch and NumPy read theirs when they are imported; what is read earlier still no script can set for itself."""
    first = [name for name in environment if must_come_first(name)]
    own = {name: text for name, text in environment.items() if name not in first}
    when = "  # before torch is imported"
    lines = [
        (f"os.environ[{name!r}] = {text!r}" if text is not None else f"os.environ.pop({name!r}, None)") + when
        for name, text in own.items()
    ]
    early = f"{', '.join(first)}: read before the script's first line: export it in the shell (--to env)"
    return (["import os", *lines] if lines else []), ([early] if first else [])


def _loader_part(knobs: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in knobs.items() if name in LOADER_ARGUMENTS}


def _torch_lines(knobs: Mapping[str, Value]) -> tuple[list[str], list[str]]:
    lines, notes = [], []
    for name, write in TORCH_CALLS.items():
        value = knobs.get(name, SCRIPT)
        if value != SCRIPT:
            lines += write(value)
    if knobs.get("autocast", SCRIPT) == "fp16":
        notes.append("fp16 needs an enabled torch.amp.GradScaler round backward() and step() of the optimizer")
    unknown = [name for name in knobs if name not in LOADER_ARGUMENTS and name not in TORCH_CALLS]
    notes += [
        f"{name} {show_value(knobs[name])} is left out: this version has no Python line for it" for name in unknown
    ]
    return lines, notes


def _autocast(value: Value) -> list[str]:
    if value == "off":
        return ["# autocast off: take the script's own torch.autocast away, or give it enabled=False"]
    inside = "    output = model(batch)  # the forward alone; loss and backward stay outside"
    return [f"with torch.autocast(device_type=device.type, dtype={DTYPES[str(value)]}):", inside]


def _compile(value: Value) -> list[str]:
    if value == "off":
        return ["# compile off: take the script's own torch.compile away"]
    mode = "" if value == "default" else f'mode="{value}"'
    return [f"model.compile({mode})  # in place, before the training: the names in its state_dict stay"]


TORCH_CALLS: dict[str, Callable[[Value], list[str]]] = {
    "threads": lambda value: [f"torch.set_num_threads({value})"],
    "matmul": lambda value: [f'torch.set_float32_matmul_precision("{value}")'],
    "compile": _compile,
    "autocast": _autocast,
}
"""Knobs that are calls of torch, in the order in which a script would make them."""


def _threads_env(value: Value) -> list[str]:
    # torch listens to both, and MKL's own wins over OpenMP's
    return [f"export OMP_NUM_THREADS={value}", f"export MKL_NUM_THREADS={value}"]


ENVIRONMENT: dict[tuple[str, Value | None], Callable[[Value], list[str]]] = {
    ("threads", None): _threads_env,
    ("matmul", "high"): lambda _: ["export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"],
    ("compile", "off"): lambda _: ["export TORCH_COMPILE_DISABLE=1"],
}
"""What torch reads from the environment, by knob and value (None: any value)."""


def _env(wanted: Wishes, calls: tuple[str, ...]) -> Export:
    del calls
    lines, left = list[str](), []
    everything = [(name, value) for name, value in wanted.knobs.items() if value != SCRIPT]
    for name, value in everything:
        write = ENVIRONMENT.get((name, value)) or ENVIRONMENT.get((name, None))
        if write:
            lines += write(value)
        else:
            left.append(f"{name} {show_value(value)}")
    for loader, own in wanted.loaders.items():
        left += [f"{loader}:{name} {show_value(value)}" for name, value in own.items() if value != SCRIPT]
    lines, notes = _with_variables(wanted.environment, lines)
    notes += _as_script(wanted.knobs)
    if left:
        notes.append(f"no environment variable says {', '.join(left)}: use --to python, or cockpit run --config")
    return Export(tuple(lines), tuple(notes))


def _with_variables(environment: Mapping[str, str | None], knobs: list[str]) -> tuple[list[str], list[str]]:
    """Those that were asked for, then the lines of ``knobs``: a knob in force has overruled a variable of its name."""
    overruled = [name for name in environment if any(line.startswith(f"export {name}=") for line in knobs)]
    lines = [
        f"unset {name}" if text is None else f"export {name}={shlex.quote(text)}"
        for name, text in environment.items()
        if name not in overruled
    ]
    notes = [f"{name} is as the knob in force has it, not as the environment" for name in overruled]
    return [*lines, *knobs], notes


def _as_script(knobs: Mapping[str, Value], whose: str = "") -> list[str]:
    names = [name for name, value in knobs.items() if value == SCRIPT]
    return [f"{', '.join(names)}{whose}: as the script has it, so there is nothing to write"] if names else []


FORMS: dict[str, Callable[[Wishes, tuple[str, ...]], Export]] = {"python": _python, "env": _env}

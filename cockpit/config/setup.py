"""``cockpit.toml``: the tuned setup of a training, with the evidence and the machine it was measured on.

Read by ``run --config`` before anything starts, written by ``save`` and by the screen. It never guesses at a
broken, foreign or newer file: those are refused with one sentence, and nothing has been started yet.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cockpit.model.environment import check_variable
from cockpit.model.errors import StartError, UsageError
from cockpit.model.knobs import Value, check_value, nearest, parse_value, show_value
from cockpit.model.names import SCHEMA

from .assign import Assignment, Wishes, address, is_of_no_loader

SECTIONS = ("setup", "environment", "measured", "machine")


@dataclass(frozen=True)
class Measured:
    """Evidence, in samples per second: before anything was changed, and under this setup (with its interval)."""

    baseline_samples_per_s: float | None = None
    samples_per_s: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Machine:
    """Where something runs: usable CPUs, accelerator, torch version; None where not known."""

    cpus: float | None = None
    gpu: str | None = None
    torch: str | None = None


@dataclass(frozen=True)
class SavedSetup:
    """One file. ``warnings`` are sentences about what was found in it and is not used."""

    wishes: Wishes
    measured: Measured = Measured()
    machine: Machine = Machine()
    warnings: tuple[str, ...] = field(default=(), compare=False)


def read_setup(path: Path) -> SavedSetup:
    """The file at ``path``; raises StartError (125) with one sentence where it cannot be used."""
    data = _load(path)
    warnings: list[str] = []
    for section in data:
        if section not in ("schema", *SECTIONS):
            warnings.append(f"{path}: [{section}] is not known to this cockpit and was not applied")
    wanted = Wishes()
    # variables alone are a setup, too
    for key, value in ({} if "environment" in data and "setup" not in data else _table(path, data, "setup")).items():
        wish = _wish(path, key, value, warnings)
        if wish:
            wanted.add(wish)
    for name, text in _variables(path, data.get("environment", {})):
        wanted.environment[name] = text
    return SavedSetup(wanted, _measured(data), _machine(data), tuple(warnings))


def _load(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise StartError(f"cannot read the setup {path}: {(error.strerror or str(error)).lower()}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartError(f"{path} is broken: {error}") from error
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or not isinstance(data.get("setup", {}), dict):
        raise StartError(f"{path} is not a cockpit setup: it has no line `schema = {SCHEMA}`")
    if schema > SCHEMA:
        raise StartError(f"{path} was written by a newer cockpit (schema {schema}, this one reads {SCHEMA}): update it")
    if schema < 1:
        raise StartError(f"{path} is not a cockpit setup: schema {schema} does not exist")
    return data


def _table(path: Path, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    if name not in data:
        raise StartError(f"{path} has no [{name}]: nothing to apply")
    return dict(data[name])


def _variables(path: Path, found: object) -> Iterator[tuple[str, str | None]]:
    """``NAME = "text"``, a whole number, or ``false``: not set."""
    if not isinstance(found, dict):
        raise StartError(f'{path}: environment is no table: write [environment] and below it NAME = "text"')
    for name, value in found.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if not (number or value is False or isinstance(value, str)):
            raise StartError(f"{path}: {name} cannot be {value!r}: a text, a whole number, or false for not set")
        text = None if value is False else str(value)
        try:
            check_variable(name, text)
        except UsageError as error:
            raise StartError(f"{path}: {error}") from error
        yield name, text


def _wish(path: Path, key: str, value: object, warnings: list[str]) -> Assignment | None:
    try:
        loader, knob = address(key)
    except UsageError:
        near = nearest(key.rpartition(":")[2])
        hint = f"; did you mean {near!r}?" if near else ""
        warnings.append(f"{path}: unknown knob {key!r} was not applied{hint}")
        return None
    wrong = is_of_no_loader(loader, knob)
    if wrong is not None:
        warnings.append(f"{path}: {key!r} was not applied: {wrong}")
        return None
    try:
        return Assignment(
            loader, knob, parse_value(knob, value) if isinstance(value, str) else check_value(knob, value)
        )
    except UsageError as error:
        raise StartError(f"{path}: {error}") from error


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _measured(data: Mapping[str, Any]) -> Measured:
    """Evidence is never needed to load: what is not a number is simply not there."""
    found = data.get("measured")
    if not isinstance(found, dict):
        return Measured()
    ends = found.get("interval")
    numbers = [_number(end) for end in ends] if isinstance(ends, list) else []
    interval = (numbers[0], numbers[1]) if len(numbers) == 2 and None not in numbers else None
    return Measured(
        _number(found.get("baseline_samples_per_s")),
        _number(found.get("samples_per_s")),
        interval,  # type: ignore[arg-type]
    )


def _machine(data: Mapping[str, Any]) -> Machine:
    found = data.get("machine")
    if not isinstance(found, dict):
        return Machine()
    gpu, torch = found.get("gpu"), found.get("torch")
    return Machine(
        _number(found.get("cpus")),
        gpu if isinstance(gpu, str) else None,
        torch if isinstance(torch, str) else None,
    )


def differences(saved: SavedSetup, here: Machine) -> list[str]:
    """What a person should know before this setup runs on ``here``: one sentence each, only about what is known.

    Everything is still asked for: what the training cannot take is refused by the probe, with its reason.
    """
    there, notes = saved.machine, []
    everywhere = (saved.wishes.knobs, *saved.wishes.loaders.values())
    workers = max((value for knobs in everywhere if isinstance(value := knobs.get("num_workers"), int)), default=0)
    if here.cpus is not None and workers > here.cpus:
        notes.append(
            f"num_workers {workers} is applied, but this job has only {here.cpus:g} CPUs"
            + (f" (the setup was measured with {there.cpus:g})" if there.cpus is not None else "")
        )
    elif here.cpus is not None and there.cpus is not None and here.cpus < there.cpus:
        notes.append(f"the setup was measured with {there.cpus:g} CPUs, this job has {here.cpus:g}")
    if there.gpu and here.gpu == "":
        pinned = any(knobs.get("pin_memory") is True for knobs in everywhere)
        also = "; pin_memory on will be refused" if pinned else ""
        notes.append(f"the setup was measured on a {there.gpu}, and no GPU is seen here{also}")
    if there.torch and here.torch and there.torch != here.torch:
        notes.append(f"the setup was measured with torch {there.torch}, this is {here.torch}")
    return notes


def words_of(wanted: Wishes) -> list[str]:
    """The wishes as people type them: ``num_workers=4``, ``train.py:52:pin_memory=on``."""
    pairs: list[tuple[str, Value]] = list(wanted.knobs.items())
    pairs += [(f"{loader}:{knob}", value) for loader, knobs in wanted.loaders.items() for knob, value in knobs.items()]
    words = [f"{name}={show_value(value)}" for name, value in pairs]
    # as a shell takes them
    words += [f"{name}={shlex.quote(text)}" for name, text in wanted.environment.items() if text is not None]
    return [*words, *(f"{name} not set" for name, text in wanted.environment.items() if text is None)]

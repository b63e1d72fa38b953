"""Writes ``cockpit.toml``: atomically, and never over a file that cockpit did not write.

The writer knows the few shapes this file has; it is no general TOML writer. Called by ``save`` and the screen.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cockpit.model.errors import CockpitError
from cockpit.model.names import SCHEMA

from .setup import SavedSetup

MARK = "# Written by cockpit"


def text_of(saved: SavedSetup) -> str:
    """The file's text. Keys that are not known are left out, never written as 0."""
    setup: dict[str, object] = dict(saved.wishes.knobs)
    for loader, knobs in saved.wishes.loaders.items():
        setup.update({f"{loader}:{knob}": value for knob, value in knobs.items()})
    measured, machine = saved.measured, saved.machine
    cpus = machine.cpus
    lines = [f"{MARK}: only what differs from the script. Use it with: cockpit run --config FILE SCRIPT"]
    lines += [f"schema = {SCHEMA}"]
    lines += _section("setup", setup)
    environment = {name: False if text is None else text for name, text in saved.wishes.environment.items()}
    lines += _section("environment", environment)
    lines += _section(
        "measured",
        {
            "baseline_samples_per_s": measured.baseline_samples_per_s,
            "samples_per_s": measured.samples_per_s,
            "interval": measured.interval,
        },
    )
    lines += _section(
        "machine",
        {
            "cpus": int(cpus) if cpus is not None and cpus == int(cpus) else cpus,
            "gpu": machine.gpu,
            "torch": machine.torch,
        },
    )
    return "\n".join(lines) + "\n"


def _section(name: str, items: Mapping[str, object]) -> list[str]:
    known = [f"{_key(key)} = {_value(value)}" for key, value in items.items() if value is not None]
    return ["", f"[{name}]", *known] if known or name == "setup" else []


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _string(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(round(value, 1))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _string(str(value))


def _string(text: str) -> str:
    # a JSON string is a TOML basic string, but for DEL and lone surrogates
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007F")


def is_ours(path: Path) -> bool:
    """Whether cockpit wrote the file that is there."""
    try:
        with path.open("rb") as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError:
        return False


def write_setup(path: Path, saved: SavedSetup, *, force: bool = False) -> None:
    """Put ``saved`` at ``path`` whole or not at all; raises CockpitError where it may or can not."""
    target = Path(os.path.realpath(path))
    if target.exists() and not force and not is_ours(target):
        raise CockpitError(f"{path} exists and was not written by cockpit: name another file with --to, or use --force")
    try:
        _replace(target, text_of(saved).encode("utf-8"))
    except OSError as error:
        raise CockpitError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        os.replace(name, target)
    finally:
        with suppress(FileNotFoundError):  # where all went well it is the target by now
            os.unlink(name)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

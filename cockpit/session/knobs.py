"""The knobs of a run as rows: what the script has, what was asked, what is in force, and why not.

Derived from the loaders that the probe reported and from the ledger; read by status, panel and save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.model.events import KnobReport, LoaderInfo
from cockpit.model.knobs import KNOBS, Value

from .state import Entry, State


@dataclass(frozen=True)
class KnobRow:
    """One knob over all training loaders. ``in_force`` is None where unknown or where loaders differ (``mixed``).

    ``state``: untouched, queued, applying, settling, kept, rolled_back, refused. ``next``: the queued value.
    """

    name: str
    script: Value | None
    asked: Value | None
    in_force: Value | None
    state: str
    reason: str | None
    can: bool
    can_now: bool
    next: Value | None = None
    mixed: bool = False
    note: str | None = None


def training_loaders(state: State) -> tuple[LoaderInfo, ...]:
    """Loaders known to train; while none is known, all whose role is still open."""
    training = tuple(loader for loader in state.loaders if loader.role == "train")
    return training or tuple(loader for loader in state.loaders if loader.role == "unknown")


def knob_rows(state: State) -> tuple[KnobRow, ...]:
    """One row a knob, in the table's order."""
    loaders = training_loaders(state)
    return tuple(_row(state, knob.name, _reports(loaders, knob.name)) for knob in KNOBS)


def _reports(loaders: Sequence[LoaderInfo], name: str) -> list[KnobReport]:
    return [report for loader in loaders for report in loader.knobs if report.name == name]


def _row(state: State, name: str, reports: list[KnobReport]) -> KnobRow:
    entry = last_entry(state, name)
    start = (state.setup or {}).get(name)
    asked = entry.asked[name] if entry and entry.state != "reverted" else start
    word = entry.state if entry and entry.state != "reverted" else "untouched"
    values = {report.in_force for report in reports}
    scripts = {report.script for report in reports}
    if word == "untouched" and start is not None and reports:
        word = "kept" if values == {start} else "refused" if any(not report.can for report in reports) else "queued"
    refused = next((report.reason for report in reports if not report.can), None)
    later = next((report.reason for report in reports if not report.can_now), None)
    return KnobRow(
        name=name,
        script=scripts.pop() if len(scripts) == 1 else None,
        asked=asked,
        in_force=values.pop() if len(values) == 1 else None,
        state=word,
        reason=(entry.reason if entry and entry.state in ("rolled_back", "refused") else None) or refused or later,
        can=bool(reports) and any(report.can for report in reports),
        can_now=bool(reports) and any(report.can and report.can_now for report in reports),
        next=entry.asked[name] if entry and entry.state in ("queued", "applying") else None,
        mixed=len({report.in_force for report in reports}) > 1,
        note=next((report.note for report in reports if report.note), None),
    )


def last_entry(state: State, name: str) -> Entry | None:
    """The newest ledger entry that touches this knob of a training loader."""
    ours = {None, *(loader.id for loader in training_loaders(state))}
    return next((entry for entry in reversed(state.ledger) if name in entry.asked and entry.loader in ours), None)


def queued(state: State) -> tuple[Entry, ...]:
    """Changes asked for and not yet in force, oldest first."""
    return tuple(entry for entry in state.ledger if entry.state in ("queued", "applying"))


def tuned_setup(state: State) -> dict[str, Value]:
    """What differs from the script right now: the ``[setup]`` of a saved file."""
    return {
        row.name: row.in_force
        for row in knob_rows(state)
        if row.in_force is not None and row.script is not None and row.in_force != row.script
    }
